-- Follows tenant_add: tenants without a live call take no space.
DELETE FROM tenants WHERE tenant = ?1 AND live <= 0
