-- Takes a call over from a driver that was found to be gone, or from nobody.
UPDATE calls SET driver = ?, until = ? WHERE id = ? AND driver = ? AND until = ?;
