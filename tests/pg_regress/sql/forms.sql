-- Other forms of an id: short code, sortable text, scattered.

\i `echo $PG_ABS_SRCDIR/refused.sql`
-- Published short codes. Their sources are in the tests of the crate, properties/text.rs.
SELECT id, snowflake_shortcode(id) AS code, snowflake_from_shortcode(snowflake_shortcode(id)) = id AS back
FROM unnest(ARRAY[908540701891980503, 1661953437569832666, 2715604631366879010, 2805452400384505271]) AS id;

-- Each form at its edges.
SELECT id, snowflake_shortcode(id) AS code, snowflake_text(id) AS text, snowflake_scatter(id) AS scattered
FROM unnest(ARRAY[-9223372036854775808, -1, 0, 1, 63, 64, 11637205501278089, 9223372036854775807]) AS id
ORDER BY id;
SELECT snowflake_shortcode(NULL) IS NULL AND snowflake_from_shortcode(NULL) IS NULL
   AND snowflake_text(NULL) IS NULL AND snowflake_from_text(NULL) IS NULL
   AND snowflake_scatter(NULL) IS NULL AND snowflake_unscatter(NULL) IS NULL AS null_in_null_out;

-- 20,000 words over all 64 bits, and ids as they are minted: each form can be converted back, and the text sorts as
-- the id does.
CREATE TEMP TABLE minted AS SELECT snowflake_next_ids(5, 5000) AS id;
CREATE TEMP TABLE ids AS
    SELECT hashint8extended(n, 0) AS id FROM generate_series(1, 20000) AS n UNION ALL SELECT id FROM minted;
SELECT count(*) AS ids,
       count(*) FILTER (WHERE snowflake_from_shortcode(snowflake_shortcode(id)) <> id) AS code,
       count(*) FILTER (WHERE snowflake_from_text(snowflake_text(id)) <> id) AS text,
       count(*) FILTER (WHERE snowflake_unscatter(snowflake_scatter(id)) <> id) AS scatter,
       count(DISTINCT snowflake_scatter(id)) AS scattered,
       min(length(snowflake_text(id))), max(length(snowflake_text(id)))
FROM ids;
SELECT count(*) AS out_of_order
FROM (SELECT id < lag(id) OVER (ORDER BY snowflake_text(id) COLLATE "C") AS wrong FROM ids) AS sorted
WHERE wrong;

CREATE FUNCTION range(number bigint) RETURNS integer LANGUAGE sql
    RETURN width_bucket(number, -9223372036854775808, 9223372036854775808, 100);
-- 5,000 ids minted in a row, among a hundred equal ranges of bigint: they lie in one range, and scattered
-- they lie evenly in all.
SELECT count(DISTINCT range(id)) AS ranges_of_ids, count(DISTINCT range(scattered)) AS ranges_of_scattered,
       (SELECT min(ids) >= 40 AND max(ids) <= 60
        FROM (SELECT count(*) AS ids FROM minted GROUP BY range(snowflake_scatter(id))) AS counts) AS evenly
FROM minted, snowflake_scatter(id) AS scattered;
DROP TABLE minted, ids;
DROP FUNCTION range;

-- The forms may be stored: in generated columns, indexes and checks.
CREATE TABLE posts (
    id bigint PRIMARY KEY,
    code text GENERATED ALWAYS AS (snowflake_shortcode(id)) STORED UNIQUE,
    sortable text COLLATE "C" GENERATED ALWAYS AS (snowflake_text(id)) STORED
);
CREATE INDEX ON posts (snowflake_scatter(id));
INSERT INTO posts VALUES (64), (63), (-1);
SELECT id, code, sortable FROM posts ORDER BY sortable;
DROP TABLE posts;

-- Invalid short codes: 22P02, and what is wrong with them. Versions of psql differ in the width of U+200B.
SELECT replace(cases, E'\u200b', '') AS cases, state, message, detail, left(hint, 20) AS hint
FROM refusals('SELECT snowflake_from_shortcode(%L)', '', 'BcQcdiXlt+a', 'BcQcdiXltba ',
              E'B\u200b', 'ABcQ', 'QAAAAAAAAAA');
-- The code of a private post: 28 characters more.
SELECT snowflake_from_shortcode('BcQcdiXltba' || repeat('x', 28));
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_from_shortcode(left('BcQcdiXltba' || repeat('x', 28), -28)) AS public_part;

-- Invalid id texts.
SELECT cases, state, message, detail, left(hint, 20) AS hint
FROM refusals('SELECT snowflake_from_text(%L)', '', '800000000000', '80AB0N69C4G1z',
              '80AB0N69C4G1I', 'G000000000000');
SELECT snowflake_from_text(repeat('é', 1000000));
\echo :LAST_ERROR_SQLSTATE

-- In a database with another encoding too.
CREATE DATABASE regress_idgen_latin1 TEMPLATE template0 ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C';
\set before :DBNAME
\c regress_idgen_latin1
CREATE EXTENSION idgen;
SET client_encoding = 'UTF8';
SELECT snowflake_from_text('é000000000000');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_from_shortcode('é');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_decode(1, 'é');
\echo :LAST_ERROR_SQLSTATE
\c :before
DROP DATABASE regress_idgen_latin1;
