-- What is due by ?1, at most ?2 of each kind, without the ready calls of the
-- tenants in the JSON array ?3; and when the next of the others is. One
-- statement, so one snapshot: a call cannot slip from one part to another.
--
-- A ready call is due whatever the time: the clock may have been set back since
-- it became ready.
--
-- A call of a tenant left out costs a step in the index. The quota of live
-- calls per tenant bounds how many there are.
SELECT * FROM (
    SELECT 'ready' AS kind, id, due_at AS at, n
    FROM calls
    WHERE state = 'ready' AND due_at IS NOT NULL AND tenant NOT IN (SELECT value FROM json_each(?3))
    ORDER BY due_at, n
    LIMIT ?2
)
UNION ALL
SELECT * FROM (
    SELECT 'overdue', id, due_at, n
    FROM calls
    WHERE state <> 'ready' AND due_at IS NOT NULL AND due_at <= ?1
    ORDER BY due_at, n
    LIMIT ?2
)
UNION ALL
SELECT * FROM (
    SELECT 'overdue', id, lease_until, n
    FROM calls
    WHERE state = 'running' AND lease_until IS NOT NULL AND lease_until <= ?1
    ORDER BY lease_until, n
    LIMIT ?2
)
UNION ALL
SELECT * FROM (
    SELECT 'next', '', due_at, 0
    FROM calls
    WHERE state <> 'ready' AND due_at IS NOT NULL AND due_at > ?1
    ORDER BY due_at
    LIMIT 1
)
UNION ALL
SELECT * FROM (
    SELECT 'next', '', lease_until, 0
    FROM calls
    WHERE state = 'running' AND lease_until IS NOT NULL AND lease_until > ?1
    ORDER BY lease_until
    LIMIT 1
)
