-- Numbers go on from the last order, so that a folder serves any number of walks.
INSERT INTO orders (id, customer, item, cents)
SELECT 'A-' || (1001 + count(*)), ?, ?, ? FROM orders
RETURNING id, customer, item, cents, version;
