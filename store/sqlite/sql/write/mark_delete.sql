-- A mark that mark_owner has found absent, past its time, or the call's own.
DELETE FROM marks WHERE kind = ?1 AND tenant = ?2 AND name = ?3
