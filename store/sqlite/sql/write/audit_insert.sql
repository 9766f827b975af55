-- At the end of a batch, whose changes are all made by then.
INSERT INTO audit (call, tenant, at, doc) VALUES (?1, ?2, ?3, ?4)
