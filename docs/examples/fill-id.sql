-- Mints an id for a new row whose writer sends NULL for it, which no default replaces: see docs/json.md. Fill in the
-- table and its shard in CREATE TRIGGER, and the schema of idgen, on which writers need USAGE. The function serves
-- other tables as well: for each, run CREATE TRIGGER alone, under the same search_path.
--
-- snowflake_assign_shard does not change this shard. A table that is partitioned by the id cannot have the trigger,
-- because PostgreSQL chooses the partition of a row before.

-- If a function of this name is there, which may be another role's, this fails and adds no trigger.
BEGIN;
CREATE FUNCTION fill_id() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.id := idgen.snowflake_next_id(TG_ARGV[0]::integer);
    RETURN NEW;
END
$$;
CREATE TRIGGER fill_id BEFORE INSERT ON photos FOR EACH ROW WHEN (NEW.id IS NULL) EXECUTE FUNCTION fill_id(5);
COMMIT;
