-- A new call, driven by the process that makes it.
INSERT INTO calls (id, version, driver, until, sealed) VALUES (?, 1, ?, ?, ?);
