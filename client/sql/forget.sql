DELETE FROM calls WHERE id = ?;
