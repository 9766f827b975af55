-- The far side of the desk: a shop that does what it is asked, as often as it
-- is asked. It only knows a request again by its key.
CREATE TABLE IF NOT EXISTS orders (
	id       TEXT PRIMARY KEY,
	customer TEXT NOT NULL,
	item     TEXT NOT NULL,
	cents    INTEGER NOT NULL,
	version  INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS ledger (
	id      INTEGER PRIMARY KEY,
	key     TEXT NOT NULL UNIQUE,
	kind    TEXT NOT NULL,
	subject TEXT NOT NULL,
	cents   INTEGER NOT NULL,
	asked   INTEGER NOT NULL DEFAULT 1 -- how often the shop was asked for this line
);
