-- The driver's change, with which its lease moves on: nothing if the entry is
-- another version, or the call somebody else's by now. What is driven has not
-- ended, or no longer has.
UPDATE calls SET version = version + 1, sealed = ?, forget_at = NULL, until = ? WHERE id = ? AND version = ? AND driver = ?;
