-- Arguments and, of a call that ended at once, its result.
INSERT INTO payloads (call, result, args) VALUES (?1, ?2, ?3)
