-- Mints an id for a new row whose writer sends NULL for it, which no default replaces: see docs/json.md. Fill in the
-- table and the shard, and the schema of idgen, on which writers need USAGE.
--
-- snowflake_assign_shard does not change this shard. A table that is partitioned by the id cannot have the trigger,
-- because PostgreSQL chooses the partition of a row before.
CREATE FUNCTION fill_id() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.id := idgen.snowflake_next_id(5);
    RETURN NEW;
END
$$;
CREATE TRIGGER fill_id BEFORE INSERT ON photos FOR EACH ROW WHEN (NEW.id IS NULL) EXECUTE FUNCTION fill_id();
