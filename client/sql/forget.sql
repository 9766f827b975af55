-- Nothing if it is another version, or its driver another or alive, by now.
DELETE FROM calls WHERE id = ? AND version = ? AND driver = ? AND until = ?;
