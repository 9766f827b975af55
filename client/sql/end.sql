-- The driver's last change, with which the call has no driver any more: nothing
-- if the entry is another version, or the call somebody else's by now.
UPDATE calls SET version = version + 1, sealed = ?, driver = '', until = 0 WHERE id = ? AND version = ? AND driver = ?;
