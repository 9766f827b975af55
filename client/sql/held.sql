-- What a driver holds, to see what others have changed.
SELECT id, version FROM calls WHERE driver = ?;
