-- The driver's change: nothing if the entry is another version, or the call
-- somebody else's by now.
UPDATE calls SET version = version + 1, sealed = ?, forget_at = ? WHERE id = ? AND version = ? AND driver = ?;
