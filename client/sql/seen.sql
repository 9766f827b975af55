-- When calls may be forgotten whose outcome a caller has had: those that are
-- still as they were then. Each is an array of id, version and time.
UPDATE calls SET forget_at = had.value ->> 2 FROM json_each(?) AS had
WHERE calls.id = had.value ->> 0 AND calls.version = had.value ->> 1 AND calls.forget_at IS NULL;
