-- Marks past their time, oldest first.
DELETE FROM marks
WHERE rowid IN (SELECT rowid FROM marks WHERE until IS NOT NULL AND until <= ?1 ORDER BY until LIMIT ?2)
