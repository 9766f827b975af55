-- The trail of a call.
SELECT seq, doc FROM audit WHERE call = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2
