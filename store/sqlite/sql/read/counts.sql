-- How many calls wait for a worker and have a run, and how much waits for people.
SELECT (SELECT count(*) FROM calls INDEXED BY calls_ready WHERE state = 'ready'),
       (SELECT count(*) FROM calls INDEXED BY calls_lease WHERE state = 'running' AND lease_until IS NOT NULL),
       (SELECT coalesce(sum(open), 0) FROM calls INDEXED BY calls_open WHERE open > 0)
