-- docs/examples/prometheus/queries.yaml: a member of pg_monitor may run its queries, and they give the
-- columns that the file calls metrics, as numbers but for labels.
SET standard_conforming_strings = on;    -- for the patterns of this test
\getenv srcdir PG_ABS_SRCDIR
\set file :srcdir '/docs/examples/prometheus/queries.yaml'
CREATE TEMP TABLE entries AS
    SELECT name[1] AS name, query[1] AS query,
           ARRAY(
               SELECT metric[1] || ' ' || metric[2]
               FROM regexp_matches(entry, '\n    - (\w+):\n +usage: (\w+)\n +description: \S', 'g') AS metric
           ) AS metrics
    FROM regexp_split_to_table(pg_read_file(:'file'), '\n(?=\w+:\n)') AS entry,
         regexp_match(entry, '^(\w+):\n') AS name,
         regexp_match(entry, '\n  query: \|\n(.*)\n  metrics:') AS query
    WHERE name IS NOT NULL;
SELECT name, unnest(metrics) AS metric FROM entries ORDER BY name;
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
        EXECUTE format('SELECT * FROM (%s) AS q LIMIT 1', entry.query) INTO STRICT row;
        columns := ARRAY(SELECT json_object_keys(to_json(row)));
        IF columns <> ARRAY(SELECT split_part(metric, ' ', 1) FROM unnest(entry.metrics) AS metric) THEN
            RAISE '% gives %', entry.name, columns;
        END IF;
        IF EXISTS (SELECT FROM json_each(to_json(row))
                   WHERE json_typeof(value) <> 'number' AND key || ' LABEL' <> ALL (entry.metrics)) THEN
            RAISE '% gives what is no number: %', entry.name, row;
        END IF;
    END LOOP;
END
$$;
RESET ROLE;
DROP TABLE entries;
DROP ROLE regress_idgen_exporter;
