-- A mark that is not past its time.
SELECT call, until, state, owner, digest, result
FROM marks
WHERE kind = ?1 AND tenant = ?2 AND name = ?3 AND (until IS NULL OR until > ?4)
