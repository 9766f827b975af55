-- What a change is checked against. Under the writer's lock, so that nothing
-- comes between the check and the write.
SELECT n, version, epoch, state, holder, lease_until, live, tenant FROM calls WHERE id = ?1
