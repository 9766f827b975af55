-- Takes the write lock at once: a transaction that turns from reading to
-- writing fails without waiting if another connection has written.
BEGIN IMMEDIATE
