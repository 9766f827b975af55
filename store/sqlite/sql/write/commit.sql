-- Makes a batch durable: returns after fsync.
COMMIT
