
-- What CREATE FUNCTION would change in functions of 0.1.0.
ALTER FUNCTION @extschema@.snowflake_next_id(integer) PARALLEL RESTRICTED SUPPORT @extschema@.idgen_simplify;
ALTER FUNCTION @extschema@.snowflake_next_id() PARALLEL RESTRICTED SUPPORT @extschema@.idgen_simplify;
ALTER FUNCTION @extschema@.snowflake_next_ids(integer, integer) PARALLEL RESTRICTED;

-- Replaced, because a later owner may have given it another body, which ALTER FUNCTION would make LEAKPROOF. PostgreSQL
-- removes LEAKPROOF again if an ordinary role replaces the function.
CREATE OR REPLACE FUNCTION @extschema@.shard_of(id bigint) RETURNS integer
    AS 'MODULE_PATHNAME', 'shard_of_wrapper'
    LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;

-- What was revoked stays revoked: the new function that mints gets the privileges of snowflake_next_id(integer), and an
-- object that replaces another one gets the privileges of that object, including who granted them. They are copied,
-- because GRANT would make them initial privileges of the extension, which a dump leaves out. They are copied while the
-- new object belongs to the owner of the old one, so that PostgreSQL puts the new owner in the place of the old.
DO $$
DECLARE
    item record;
    rights aclitem[];
    owner text;
BEGIN
    FOR item IN
        SELECT 'FUNCTION' AS kind, 'pg_proc'::regclass AS catalog, new::text AS name, new::oid AS oid, model::oid AS model
        FROM (VALUES
            ('@extschema@.snowflake_next_id_js(integer)'::regprocedure,
             '@extschema@.snowflake_next_id(integer)'::regprocedure),
            ('@extschema@.idgen_status()', '@extschema@.idgen_status_of_0_1_0()'),
            ('@extschema@.idgen_shard_stats()', '@extschema@.idgen_shard_stats_of_0_1_0()')) AS functions (new, model)
        UNION ALL
        SELECT 'VIEW', 'pg_class', new::text, new, model
        FROM (VALUES ('@extschema@.idgen_status'::regclass, '@extschema@.idgen_status_of_0_1_0'::regclass),
                     ('@extschema@.idgen_shard_stats', '@extschema@.idgen_shard_stats_of_0_1_0')) AS views (new, model)
    LOOP
        IF item.kind = 'FUNCTION' THEN
            SELECT proacl, proowner::regrole INTO rights, owner FROM pg_proc WHERE oid = item.model FOR UPDATE;
        ELSE
            SELECT relacl, relowner::regrole INTO rights, owner FROM pg_class WHERE oid = item.model FOR UPDATE;
        END IF;
        EXECUTE format('ALTER %s %s OWNER TO %s', item.kind, item.name, owner);
        UPDATE pg_proc SET proacl = rights WHERE oid = item.oid AND item.kind = 'FUNCTION';
        UPDATE pg_class SET relacl = rights WHERE oid = item.oid AND item.kind = 'VIEW';
        DELETE FROM pg_shdepend
        WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND classid = item.catalog AND objid = item.oid AND deptype = 'a';
        INSERT INTO pg_shdepend
        SELECT dbid, classid, item.oid, objsubid, refclassid, refobjid, deptype FROM pg_shdepend
        WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND classid = item.catalog AND objid = item.model AND objsubid = 0 AND deptype = 'a';
        EXECUTE format('ALTER %s %s OWNER TO CURRENT_USER', item.kind, item.name);
    END LOOP;
END $$;

-- If something depends on one of these, the update fails and names it.
DROP VIEW @extschema@.idgen_status_of_0_1_0, @extschema@.idgen_shard_stats_of_0_1_0;
DROP FUNCTION @extschema@.idgen_status_of_0_1_0(), @extschema@.idgen_shard_stats_of_0_1_0();
