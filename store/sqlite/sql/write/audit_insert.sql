-- Last in its change, which a conflict has not ended by then.
INSERT INTO audit (call, tenant, at, doc) VALUES (?1, ?2, ?3, ?4)
