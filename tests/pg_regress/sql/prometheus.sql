-- docs/examples/prometheus: a member of pg_monitor may run the queries of queries.yaml, and they give the columns that
-- the file calls metrics, as numbers but for labels. idgen.collector.yml gives the same metrics by the same queries.
-- What programs make of these files is tested by every_alert_fires on real servers.
SET standard_conforming_strings = on;    -- for the patterns of this test
\getenv srcdir PG_ABS_SRCDIR
\set file :srcdir '/docs/examples/prometheus/queries.yaml'
\set collector :srcdir '/docs/examples/prometheus/idgen.collector.yml'
CREATE TEMP TABLE entries AS
    SELECT name[1] AS name, query[1] AS query,
           ARRAY(
               SELECT concat_ws(' ', metric[1], metric[2], metric[3])
               FROM regexp_matches(entry, '\n    - (\w+):\n +usage: (\w+)\n +description: (\S[^\n]*)', 'g') AS metric
           ) AS metrics
    FROM regexp_split_to_table(pg_read_file(:'file'), '\n(?=\w+:\n)') AS entry,
         regexp_match(entry, '^(\w+):\n') AS name,
         regexp_match(entry, '\n  query: \|\n(.*)\n  metrics:') AS query
    WHERE name IS NOT NULL;
CREATE TEMP VIEW metrics AS
    SELECT name, split_part(metric, ' ', 1) AS "column", split_part(metric, ' ', 2) AS usage,
           regexp_replace(metric, '^\S+ \S+ ', '') AS description
    FROM entries, unnest(metrics) AS metric;
SELECT name, "column", usage FROM metrics;
CREATE ROLE regress_idgen_exporter IN ROLE pg_monitor;
GRANT SELECT ON entries TO regress_idgen_exporter;
SELECT shard_of(snowflake_next_id(800));
SET ROLE regress_idgen_exporter;
DO $$
DECLARE
    entry record;
    row record;
    columns text[];
BEGIN
    FOR entry IN SELECT * FROM entries LOOP
        -- There may be no warning, and then a row of nulls here.
        EXECUTE format('SELECT q.* FROM (VALUES (1)) AS one LEFT JOIN (%s) AS q ON true LIMIT 1', entry.query)
            INTO STRICT row;
        columns := ARRAY(SELECT json_object_keys(to_json(row)));
        IF columns <> ARRAY(SELECT split_part(metric, ' ', 1) FROM unnest(entry.metrics) AS metric) THEN
            RAISE '% gives %', entry.name, columns;
        END IF;
        IF EXISTS (SELECT FROM json_each(to_json(row))
                   WHERE json_typeof(value) NOT IN ('number', 'null')
                     AND NOT EXISTS (SELECT FROM unnest(entry.metrics) AS metric
                                     WHERE metric LIKE key || ' LABEL %')) THEN
            RAISE '% gives what is no number: %', entry.name, row;
        END IF;
    END LOOP;
END
$$;
RESET ROLE;

-- Each metric of the collector, without the dashes and blanks that its file is laid out with, and those there should be.
CREATE TEMP VIEW collected AS
    SELECT regexp_replace(metric, '\s+', ' ', 'g') AS metric
    FROM regexp_split_to_table(split_part(pg_read_file(:'collector'), E'\nqueries:', 1), '\n  - ') WITH ORDINALITY
             AS m (metric, place)
    WHERE place > 1;
CREATE TEMP VIEW expected AS
    SELECT format('metric_name: %s_%s type: %s help: %s %svalues: [%s] query_ref: %s',
                  name, "column", lower(usage), description,
                  (SELECT format('key_labels: [%s] ', string_agg("column", ', '))
                   FROM metrics AS label WHERE label.name = metrics.name AND label.usage = 'LABEL' HAVING count(*) > 0),
                  "column", name) AS metric
    FROM metrics
    WHERE usage <> 'LABEL';
SELECT count(*) FROM collected;
SELECT 'not expected' AS is, rtrim(metric) AS metric FROM collected WHERE rtrim(metric) NOT IN (TABLE expected)
UNION ALL
SELECT 'missing', metric FROM expected WHERE metric NOT IN (SELECT rtrim(metric) FROM collected);
SELECT name AS other_query
FROM entries
WHERE strpos(regexp_replace(pg_read_file(:'collector'), '\s+', ' ', 'g'),
             format('- query_name: %s query: | %s', name, regexp_replace(ltrim(query), '\s+', ' ', 'g'))) = 0;
DROP VIEW metrics, expected, collected;
DROP TABLE entries;
DROP ROLE regress_idgen_exporter;
