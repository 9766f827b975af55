-- A call with its arguments and result. One statement, so one snapshot.
SELECT c.version, c.epoch, c.state, c.holder, c.lease_until, c.doc, p.args, p.result
FROM calls AS c LEFT JOIN payloads AS p ON p.call = c.n
WHERE c.id = ?1
