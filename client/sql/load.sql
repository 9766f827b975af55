SELECT version, driver, until, forget_at IS NOT NULL, sealed FROM calls WHERE id = ?;
