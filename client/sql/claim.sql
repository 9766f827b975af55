-- Takes a call over from a driver that was found to be gone, or from nobody;
-- nothing if it is another version by now.
UPDATE calls SET driver = ?, until = ? WHERE id = ? AND version = ? AND driver = ? AND until = ?;
