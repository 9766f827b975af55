-- Whether any mark is past its time.
SELECT EXISTS (SELECT 1 FROM marks WHERE until IS NOT NULL AND until <= ?1)
