-- Moves the leases of what a driver holds on. What it could not release is not
-- among them, and ends by itself.
UPDATE calls SET until = ? WHERE driver = ? AND id IN (SELECT value FROM json_each(?));
