-- Anybody's change: nothing if the entry is another version.
UPDATE calls SET version = version + 1, sealed = ?, forget_at = ? WHERE id = ? AND version = ?;
