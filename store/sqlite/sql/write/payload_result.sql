-- The result, if it is another than before: most changes have none.
UPDATE payloads SET result = ?2 WHERE call = ?1 AND result IS NOT ?2
