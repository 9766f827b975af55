-- +goose Up

-- open becomes how many open questions and held effects the call has.
UPDATE calls
SET open = (SELECT count(*) FROM json_each(CAST(doc AS TEXT), '$.questions') WHERE CASE type WHEN 'object' THEN value ->> 'state' END = 'open')
         + (SELECT count(*) FROM json_each(CAST(doc AS TEXT), '$.effects') WHERE CASE type WHEN 'object' THEN value ->> 'state' END = 'held')
WHERE open = 1 AND json_valid(CAST(doc AS TEXT)); -- what is garbled shows when it is read

DROP INDEX calls_open;
CREATE INDEX calls_open ON calls (tenant, created_at, n, open) WHERE open > 0;
