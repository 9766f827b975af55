-- What may be forgotten by now, unless somebody is at it: a driver that died at
-- the very end has left its name.
DELETE FROM calls WHERE forget_at <= ?1 AND (driver = '' OR until <= ?1);
