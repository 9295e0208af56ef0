-- Ids of other systems: snowflake_decode(id, layout) and the view snowflake_layouts.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\i `echo $PG_ABS_SRCDIR/refused.sql`

SELECT name, bits, unit, epoch FROM snowflake_layouts;
SELECT name, shard, used_by FROM snowflake_layouts;
SELECT bool_and(unit::interval > '0') AS units_are_intervals FROM snowflake_layouts;

-- Published ids. Their sources are in the tests of the crate, properties/foreign.rs.
SELECT layout, d.*
FROM (VALUES (1, 'instagram', 11637205501278089), (2, 'instagram', 1661953437569832666),
             (3, 'twitter', 1541815603606036480), (4, 'discord', 175928847299117063),
             (5, 'mastodon', 103270115826048975), (6, 'pgedge', 136169504773242881),
             (7, 'leaf', ((1567733700834 - 1288834974657) << 22) | (39 << 12) | 3448),
             (8, 'sonyflake', 24869724975 << 24), (9, 'baidu', 9223372036854775807)) AS ids (n, layout, id),
     snowflake_decode(id, layout) AS d
ORDER BY n;

-- By the own layout, and with a gene. An order has the gene of its user's id.
SELECT (snowflake_decode(0, 'js53')).*;
SELECT * FROM snowflake_decode((1::bigint << 20) | (200 << 12) | 4095, 'js53');
SELECT sequence, gene, gene = 20240611 % 16 AS same_shard
FROM snowflake_decode((1000::bigint << 22) | (63 << 16) | (5 << 4) | 20240611 % 16, 'gene');
SELECT count(*) FILTER (WHERE (own.created_at, own.shard, own.sequence)
                              IS DISTINCT FROM (named.created_at, named.shard, named.sequence)) AS differ
FROM generate_series(1, 10000) AS n, hashint8extended(n, 0) AS id,
     snowflake_decode(id) AS own, snowflake_decode(id, 'idgen') AS named;

-- Every bigint decodes by every layout of 63 bits and more.
SELECT name, created_at, d.shard, sequence, gene
FROM snowflake_layouts, snowflake_decode(-1, name) AS d
WHERE name <> 'js53';
SELECT snowflake_decode(NULL, 'twitter') IS NULL AS no_id, snowflake_decode(1, NULL) IS NULL AS no_layout;

-- A name that is none, however near; and an id that is none of a layout with fewer bits.
SELECT state, message, detail, hint
FROM refusals('SELECT snowflake_decode(1, %L)', 'Twitter', '', E'twitter\u200b "' || repeat('x', 100));
SELECT * FROM snowflake_decode(4503599627370495, 'js53');
SELECT * FROM refusals('SELECT snowflake_decode(%s, ''js53'')', '4503599627370496', '-1');

-- It follows a setting, so its result may not be stored in an index.
\set VERBOSITY sqlstate
CREATE TABLE tweets (id bigint);
CREATE INDEX ON tweets (((snowflake_decode(id, 'twitter')).created_at));
DROP TABLE tweets;
