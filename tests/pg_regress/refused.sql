\set ECHO none
-- The error of a statement that must fail, without a number of milliseconds that depends on the clock. The state is null
-- if it does not fail. Tests include this file; errors.sql shows errors as psql prints them.
CREATE OR REPLACE FUNCTION refused(statement text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    detail := regexp_replace(detail, 'is [0-9]{4,} ms', 'is N ms');
END $$;
-- The same for several cases of a statement: each takes the place of %s or %L in the pattern, which is one of format().
-- Cases with the same error share a row.
CREATE OR REPLACE FUNCTION refusals(pattern text, VARIADIC tried text[])
RETURNS TABLE (cases text, state text, message text, detail text, hint text) LANGUAGE sql AS $$
    SELECT string_agg(try, '; ' ORDER BY n), state, message, detail, hint
    FROM unnest(tried) WITH ORDINALITY AS t (try, n), refused(format(pattern, try))
    GROUP BY state, message, detail, hint ORDER BY min(n)
$$;
\set ECHO all
