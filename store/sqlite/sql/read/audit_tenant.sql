-- The trail of a tenant.
SELECT seq, doc FROM audit WHERE tenant = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2
