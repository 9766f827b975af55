-- A call and, by the foreign key, its payloads.
DELETE FROM calls WHERE n = ?1
