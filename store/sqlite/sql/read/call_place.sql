-- Where a call stands in the order of List.
SELECT created_at, n FROM calls WHERE id = ?1 AND tenant = ?2
