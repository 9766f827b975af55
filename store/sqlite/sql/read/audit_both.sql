-- The trail of a call as far as it is the tenant's. The plus keeps SQLite from
-- walking the tenant's whole trail for it.
SELECT seq, doc FROM audit WHERE call = ?3 AND +tenant = ?4 AND seq > ?1 ORDER BY seq LIMIT ?2
