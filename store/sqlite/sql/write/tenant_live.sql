-- How many calls of the tenant have not ended. No row: none.
SELECT live FROM tenants WHERE tenant = ?1
