-- At the end of a batch: what its changes have added and taken away.
INSERT INTO tenants (tenant, live) VALUES (?1, ?2)
ON CONFLICT (tenant) DO UPDATE SET live = live + ?2
