SELECT count(*), coalesce(sum(asked), 0), coalesce(sum(cents), 0), coalesce(max(id), 0)
FROM ledger WHERE kind = ? AND subject = ?;
