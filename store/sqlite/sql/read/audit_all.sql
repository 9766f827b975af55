-- The whole trail.
SELECT seq, doc FROM audit WHERE seq > ?1 ORDER BY seq LIMIT ?2
