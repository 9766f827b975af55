-- Anybody's change: nothing if the entry is another version.
UPDATE calls SET version = version + 1, sealed = ? WHERE id = ? AND version = ?;
