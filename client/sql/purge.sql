-- What may be forgotten by now, unless somebody is at it.
DELETE FROM calls WHERE forget_at <= ?1 AND (driver = '' OR until <= ?1);
