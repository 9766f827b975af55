-- Inside begin, around each change.
SAVEPOINT job
