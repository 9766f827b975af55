SELECT id, version, driver, until, sealed FROM calls ORDER BY n;
