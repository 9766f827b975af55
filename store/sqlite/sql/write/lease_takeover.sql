-- This process is the only one: every lease but its own is of a dead one.
UPDATE calls SET lease_until = ?2
WHERE state = 'running' AND lease_until IS NOT NULL AND lease_until > ?2 AND holder <> ?1
