-- Undoes a refused change and nothing else of its batch. job_end follows.
ROLLBACK TO job
