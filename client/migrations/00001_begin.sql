-- +goose Up

-- A call that a client has made, or makes. sealed is the entry, encrypted and
-- bound to id and version; what other columns hold tells nothing of it. driver
-- is the process that drives it, empty for none, until a time that it moves on
-- as long as it lives. Times are milliseconds since 1970; NULL is never.
CREATE TABLE calls (
    n         INTEGER PRIMARY KEY,
    id        TEXT    NOT NULL UNIQUE,
    version   INTEGER NOT NULL,
    driver    TEXT    NOT NULL,
    until     INTEGER NOT NULL,
    forget_at INTEGER,
    sealed    BLOB    NOT NULL
) STRICT;

CREATE INDEX calls_driver ON calls (driver) WHERE driver <> '';
CREATE INDEX calls_forget ON calls (forget_at) WHERE forget_at IS NOT NULL;
