-- +goose Up

-- A call. doc is the call as JSON, without what the other columns and payloads
-- hold. n is its place in the order of opening. Times are nanoseconds since
-- 1970; NULL is never.
CREATE TABLE calls (
    n           INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    tenant      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    open        INTEGER NOT NULL, -- 1: an open question or a held effect
    live        INTEGER NOT NULL, -- 1: has not ended
    version     INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    holder      TEXT    NOT NULL,
    lease_until INTEGER,          -- changes without the version
    due_at      INTEGER,
    doc         BLOB    NOT NULL
) STRICT;

-- What Due looks at. Each index holds only calls that can be due in its way,
-- and has all that the question needs.
CREATE INDEX calls_ready ON calls (due_at, n, tenant, id) WHERE state = 'ready';
CREATE INDEX calls_due   ON calls (due_at, n, id) WHERE state <> 'ready' AND due_at IS NOT NULL;
CREATE INDEX calls_lease ON calls (lease_until, n, id) WHERE state = 'running' AND lease_until IS NOT NULL;

-- What List looks at.
CREATE INDEX calls_all  ON calls (tenant, created_at, n);
CREATE INDEX calls_open ON calls (tenant, created_at, n) WHERE open = 1;
CREATE INDEX calls_live ON calls (tenant, created_at, n) WHERE live = 1;

-- Arguments are written once, a result at the end: they stay out of the row
-- that every change rewrites. The result comes first, so that it is reached
-- without reading the arguments.
CREATE TABLE payloads (
    call   INTEGER PRIMARY KEY REFERENCES calls (n) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    result BLOB,
    args   BLOB
) STRICT;

-- Who holds a subject or an idempotency key, and which calls are purged.
CREATE TABLE marks (
    kind   TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    call   TEXT NOT NULL,
    until  INTEGER,
    state  TEXT NOT NULL,
    owner  BLOB NOT NULL, -- JSON
    digest TEXT NOT NULL,
    result BLOB,
    UNIQUE (kind, tenant, name)
) STRICT;

CREATE INDEX marks_until ON marks (until) WHERE until IS NOT NULL;

-- The audit trail. AUTOINCREMENT: no number is given twice.
CREATE TABLE audit (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    call   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    doc    BLOB    NOT NULL
) STRICT;

CREATE INDEX audit_call   ON audit (call, seq);
CREATE INDEX audit_tenant ON audit (tenant, seq);

-- +goose StatementBegin
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only');
END;
-- +goose StatementEnd

-- How many calls of a tenant have not ended. Kept by the writer in the
-- transaction that changes a call; no row is none.
CREATE TABLE tenants (
    tenant TEXT    PRIMARY KEY,
    live   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
