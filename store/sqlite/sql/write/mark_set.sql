-- A mark that mark_owner has found absent, past its time, or the call's own.
INSERT INTO marks (kind, tenant, name, call, until, state, owner, digest, result)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (kind, tenant, name) DO UPDATE
SET call = ?4, until = ?5, state = ?6, owner = ?7, digest = ?8, result = ?9
