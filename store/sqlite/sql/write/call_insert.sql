-- A call that must not exist yet; if it does, nothing is changed.
INSERT INTO calls (id, tenant, created_at, state, open, live, version, epoch, holder, lease_until, due_at, doc)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (id) DO NOTHING
