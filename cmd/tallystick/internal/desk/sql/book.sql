-- The same key again is the same line again.
INSERT INTO ledger (key, kind, subject, cents) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET asked = asked + 1
RETURNING id, cents;
