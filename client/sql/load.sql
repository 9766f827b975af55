SELECT version, driver, until, sealed FROM calls WHERE id = ?;
