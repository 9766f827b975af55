-- Whose a mark is, unless it is past its time. Asked before anything of the
-- change is written.
SELECT call FROM marks
WHERE kind = ?1 AND tenant = ?2 AND name = ?3 AND (until IS NULL OR until > ?4)
