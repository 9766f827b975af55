-- A lease that is over stays over: whoever saw that acts on it, and the call's
-- version would not tell them of a renewal. A lease is never shortened.
UPDATE calls SET lease_until = max(lease_until, ?5)
WHERE id = ?1 AND state = 'running' AND epoch = ?2 AND holder = ?3 AND lease_until > ?4
