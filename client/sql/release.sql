UPDATE calls SET driver = '', until = 0 WHERE id = ? AND driver = ?;
