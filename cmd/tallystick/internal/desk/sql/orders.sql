SELECT id, customer, item, cents, version FROM orders ORDER BY id;
