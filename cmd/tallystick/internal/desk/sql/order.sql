SELECT id, customer, item, cents, version FROM orders WHERE id = ?;
