-- Calls of a tenant with an open question or a held effect; only live ones if ?5 is 1, after a place in their order.
SELECT id, version, epoch, state, holder, lease_until, doc
FROM calls INDEXED BY calls_open
WHERE tenant = ?1 AND open > 0 AND live >= ?5 AND (created_at, n) > (?2, ?3)
ORDER BY created_at, n
LIMIT ?4
