-- Follows call_insert, call_update and call_delete in their transaction.
INSERT INTO tenants (tenant, live) VALUES (?1, ?2)
ON CONFLICT (tenant) DO UPDATE SET live = live + ?2
