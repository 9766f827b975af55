-- Undoes a batch.
ROLLBACK
