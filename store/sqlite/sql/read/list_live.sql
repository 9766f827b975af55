-- Calls of a tenant that have not ended, after a place in their order.
SELECT id, version, epoch, state, holder, lease_until, doc
FROM calls
WHERE tenant = ?1 AND live = 1 AND (created_at, n) > (?2, ?3)
ORDER BY created_at, n
LIMIT ?4
