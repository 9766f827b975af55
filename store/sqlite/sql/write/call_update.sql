-- A call that call_find has found at the expected version. The lease of a run
-- may have been renewed since the run was read: it stays while the run does.
UPDATE calls
SET holder      = CASE WHEN state = 'running' AND ?2 = 'running' AND epoch = ?6 THEN holder ELSE ?7 END,
    lease_until = CASE WHEN state = 'running' AND ?2 = 'running' AND epoch = ?6 THEN lease_until ELSE ?8 END,
    state = ?2, open = ?3, live = ?4, version = ?5, epoch = ?6, due_at = ?9, doc = ?10, created_at = ?11
WHERE n = ?1
