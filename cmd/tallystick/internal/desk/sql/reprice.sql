UPDATE orders SET cents = ?, version = version + 1 WHERE id = ?;
