//! Rights. A restore runs code of the schema's owner, in CHECK constraints for example, and so does a dump, which plans a
//! query of each sequence. So the owner does both, not a superuser. The owner must not run code of third roles either, so
//! everything that the schema uses belongs to superusers or the owner, on both servers.

use std::collections::BTreeSet;

use super::plan::Plan;
use crate::connection::session::Session;
use crate::terminal::error::{Result, refuse_any};
use crate::terminal::text::said;

/// The beginning of a query: the objects of the schema `$1` and, if `$2`, those that they use.
pub const USED: &str = "
    WITH RECURSIVE this AS (SELECT oid AS schema FROM pg_namespace WHERE nspname = $1),
    used (classid, objid) AS (
        SELECT 'pg_namespace'::regclass::oid, schema FROM this
        UNION
        SELECT next.*
        FROM this, used, LATERAL (
            SELECT refclassid, refobjid FROM pg_depend AS d
            WHERE $2::boolean AND d.classid = used.classid AND d.objid = used.objid
            UNION ALL
            SELECT d.classid, d.objid FROM pg_depend AS d
            WHERE d.refclassid = used.classid AND d.refobjid = used.objid
              AND (d.deptype IN ('a', 'i', 'P', 'S')
                   OR used.classid = 'pg_namespace'::regclass AND used.objid = this.schema)) AS next (classid, objid)
        WHERE next.classid <> 'pg_extension'::regclass)";

/// Checks what the schema uses, on both servers, in a snapshot that a session in a transaction keeps. Returns pg_dump's
/// option for it: pg_dump then sees no later objects, although it does show later names.
pub fn look_at(plan: &Plan<'_>, name: &str, keeper: &Session) -> Result<String> {
    let snapshot = keeper.value("SELECT pg_export_snapshot()", &[])?;
    let session = plan.source.primary().session()?;
    session.run(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'"))?;
    refuse_objects_of_others(plan, &session, name)?;
    refuse_names_of_others(plan, &session, name)?;
    Ok(format!("--snapshot={snapshot}"))
}

/// Refuses objects that the owner must not restore, or cannot. The catalogs of the objects say who owns them: pg_shdepend
/// leaves out predefined roles, such as pg_database_owner. What a role of which the owner is a member has in the schema
/// is the owner's choice. What the schema uses elsewhere is safe only with roles that can do all that the owner can.
fn refuse_objects_of_others(plan: &Plan<'_>, session: &Session, name: &str) -> Result {
    let inside = NAMED.map(|(catalog, of)| (catalog, of, format!("{of}namespace")));
    let elsewhere = OWNED.map(|(catalog, of)| (catalog, of, "c.oid".to_owned()));
    let owned = inside.into_iter().chain(elsewhere).map(|(catalog, of, schema)| {
        format!(
            "UNION ALL SELECT classid, objid, {of}owner, {schema} = this.schema
             FROM this CROSS JOIN used JOIN {catalog} AS c ON classid = '{catalog}'::regclass AND objid = c.oid
             WHERE {schema} <> 'pg_toast'::regnamespace "
        )
    });
    let owned: String = owned.collect();
    let others = session.value(
        &format!(
            "{USED}
             SELECT string_agg(quote_literal(what), ', ')
             FROM (SELECT DISTINCT format('%s of %s', pg_describe_object(classid, objid, 0), rolname)
                   FROM (SELECT classid, objid, defaclrole, true FROM used JOIN pg_default_acl AS c
                         ON classid = 'pg_default_acl'::regclass AND objid = c.oid
                         {owned}) AS owned (classid, objid, owner, is_inside)
                        JOIN this ON true JOIN pg_namespace AS n ON n.oid = this.schema
                        JOIN pg_database ON datname = current_database()
                        JOIN pg_roles AS r ON r.oid = CASE owner WHEN 'pg_database_owner'::regrole THEN datdba ELSE owner END
                   WHERE NOT (rolsuper AND NOT is_inside)
                     AND NOT EXISTS (SELECT FROM pg_roles AS o WHERE NOT o.rolsuper AND CASE WHEN is_inside
                                         THEN o.rolname = $3 AND pg_has_role(o.oid, r.oid, 'MEMBER')
                                         ELSE (o.rolname = $3 OR o.oid = nspowner) AND pg_has_role(r.oid, o.oid, 'MEMBER') END)
                   LIMIT 5) AS found (what)"
        ),
        &[name, "t", &plan.owner],
    )?;
    refuse_any(
        &others,
        format!("{} must not restore what others may have written", plan.owner),
        "Give --owner as the role that owns the schema, or as a member of all that own parts. Give what belongs to superusers to \
         such a role. Have others drop what is theirs, and revoke default privileges: ALTER DEFAULT PRIVILEGES FOR ROLE.",
    )
}

/// The catalogs of objects in schemas, with the prefixes of their columns.
const NAMED: [(&str, &str); 6] = [
    ("pg_proc", "pro"),
    ("pg_type", "typ"),
    ("pg_operator", "opr"),
    ("pg_class", "rel"),
    ("pg_collation", "coll"),
    ("pg_ts_config", "cfg"),
];

/// The other catalogs of objects with an owner that a schema may have or use.
const OWNED: [(&str, &str); 10] = [
    ("pg_namespace", "nsp"),
    ("pg_conversion", "con"),
    ("pg_foreign_data_wrapper", "fdw"),
    ("pg_foreign_server", "srv"),
    ("pg_language", "lan"),
    ("pg_opclass", "opc"),
    ("pg_opfamily", "opf"),
    ("pg_publication", "pub"),
    ("pg_statistic_ext", "stx"),
    ("pg_ts_dict", "dict"),
];

/// Refuses references to objects outside the schema if their names could lead to objects of other roles on the target.
pub fn refuse_names_of_others(plan: &Plan<'_>, session: &Session, name: &str) -> Result {
    let kinds = |select: fn(&(&str, &str)) -> String| NAMED.iter().map(select).collect::<String>();
    let used = kinds(|(catalog, of)| {
        format!(
            "UNION ALL SELECT {of}namespace, {of}name FROM {catalog} WHERE classid = '{catalog}'::regclass AND oid = objid "
        )
    });
    let found =
        kinds(|(catalog, of)| format!("UNION ALL SELECT {of}namespace, {of}name, {of}owner FROM {catalog} "));
    let names = session.value(
        &format!(
            "{USED}
             SELECT coalesce(json_agg(DISTINCT jsonb_build_array(nspname, name)), '[]')
             FROM this, used, LATERAL (
                 SELECT oid, NULL FROM pg_namespace WHERE classid = 'pg_namespace'::regclass AND oid = objid
                 UNION ALL
                 SELECT 0, srvname FROM pg_foreign_server WHERE classid = 'pg_foreign_server'::regclass AND oid = objid
                 {used}
             ) AS named (namespace, name) LEFT JOIN pg_namespace AS n ON n.oid = namespace
             WHERE namespace <> this.schema AND nspname IS DISTINCT FROM 'pg_toast'"
        ),
        &[name, "t"],
    )?;
    let owner = "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = $1";
    let owner = session.value(owner, &[name])?;
    let there = plan.target.primary().session()?;
    // Who waits for the lock of pg_extension that this run holds makes this wait, too, while the schema is closed.
    there.run("SET statement_timeout = '10s'")?;
    let others = there.value(
        &format!("WITH names AS (SELECT name->>0 AS schema, name->>1 AS name FROM json_array_elements($1::json) AS name),
              others AS (SELECT r.oid, rolname, datdba FROM pg_roles AS r JOIN pg_database ON datname = current_database()
                         WHERE NOT rolsuper AND rolname <> 'pg_database_owner'
                           AND NOT EXISTS (SELECT FROM pg_roles AS o WHERE o.rolname IN ($2, $3) AND NOT o.rolsuper
                                               AND pg_has_role(r.oid, o.oid, 'MEMBER')))
         SELECT string_agg(DISTINCT what, ', ')
         FROM (SELECT format('%s %I, which the target lacks', CASE WHEN schema IS NULL THEN 'server' ELSE 'schema' END,
                             coalesce(schema, name))
               FROM names LEFT JOIN pg_namespace ON nspname = schema LEFT JOIN pg_foreign_server ON srvname = name
               WHERE CASE WHEN schema IS NULL THEN srvname IS NULL ELSE nspname IS NULL END
               UNION ALL
               SELECT format('schema %I, in which %I may create objects', nspname, rolname)
               FROM names JOIN pg_namespace AS n ON nspname = schema, others AS r
               -- Also after SET ROLE, which has_schema_privilege() leaves out if the role does not inherit.
               WHERE EXISTS (SELECT FROM aclexplode(nspacl) AS given
                             WHERE privilege_type = 'CREATE' AND (given.grantee = 0 OR pg_has_role(r.oid, given.grantee, 'MEMBER')))
                  OR pg_has_role(r.oid, CASE nspowner WHEN 'pg_database_owner'::regrole THEN datdba ELSE nspowner END, 'MEMBER')
               UNION ALL
               -- The path of a function may lead to any of them.
               SELECT format('%s of %I', concat_ws('.', quote_ident(nspname), quote_ident(found)), rolname)
               FROM (SELECT 0, srvname, srvowner FROM pg_foreign_server {found}) AS o (namespace, found, owner) LEFT JOIN pg_namespace AS n ON n.oid = namespace
                    JOIN others AS r ON r.oid = CASE owner WHEN 'pg_database_owner'::regrole THEN datdba ELSE owner END
               WHERE (SELECT bool_or(schema = nspname OR schema IS NULL AND nspname IS NULL AND name = found) FROM names)
               UNION ALL
               -- Types alone may lead to an operator or operator class. Who owns an extension or its schema can drop what uses it.
               SELECT format('extension %I of %I', extname, rolname) FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
               JOIN others AS r ON r.oid IN (extowner, nspowner) OR r.oid = datdba AND 'pg_database_owner'::regrole IN (extowner, nspowner)
               LIMIT 5) AS found (what)"),
        &[&names, &plan.owner, &owner],
    )?;
    refuse_any(
        &others,
        format!("{} must not restore what may use objects of others on the target", plan.owner),
        "Create what the target lacks. On both servers, have what the schema uses in schemas that belong to superusers or to that \
         role, and in which only they have or may create objects. Have others drop what is theirs, also extensions, and a superuser \
         create these, in such schemas.",
    )
}

/// Checks that the owner can read all rows: policies may hide some, and pg_dump would fail while the schema is closed.
pub fn check_rows(plan: &Plan<'_>) -> Result {
    let hidden = plan.as_owner[0].value(
        "SELECT string_agg(what, ', ')
         FROM (SELECT format('%I.%I', nspname, relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
               WHERE nspname = $1 AND relkind IN ('r', 'p', 'S')
                 AND (NOT has_table_privilege(c.oid, 'SELECT') OR row_security_active(c.oid) OR relkind <> 'S'
                          AND NOT has_table_privilege(relowner, c.oid, 'UPDATE, DELETE, TRUNCATE')) LIMIT 5) AS found (what)",
        &[&plan.names.schema],
    )?;
    refuse_any(
        &hidden,
        "--owner is a role that cannot read all rows, or the owners of the tables cannot lock them",
        "Grant it SELECT, and the owners UPDATE. A table that forces row security on its owner cannot be moved.",
    )
}

/// Checks that the target has all roles, except that of initdb: the catalogs do not record what it owns.
pub fn check_roles(plan: &Plan<'_>) -> Result {
    let roles = plan.source.primary().value(
        &format!(
            "{USED}
             SELECT coalesce(json_agg(DISTINCT rolname), '[]')
             FROM used JOIN pg_shdepend AS s USING (classid, objid) JOIN pg_roles AS r ON r.oid = refobjid
             WHERE refclassid = 'pg_authid'::regclass
               AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ),
        &[&plan.names.schema, "f"],
    )?;
    let missing = plan.target.primary().value(
        "SELECT string_agg(quote_ident(name), ', ' ORDER BY name) FROM json_array_elements_text($1::json) AS name
         WHERE name NOT IN (SELECT rolname FROM pg_roles)",
        &[&roles],
    )?;
    refuse_any(&missing, "the target lacks roles that the schema names", "Create them there.")
}

/// A query of the rights that a schema and its objects give, as one line of JSON. Not all releases know MAINTAIN.
pub fn given(schema: &str) -> String {
    let schema = Session::literal(schema);
    format!(
        "SELECT json_agg(DISTINCT format('%s%s on %s to %s', privilege_type, CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END,
                                         (pg_identify_object(class, object, part)).identity, coalesce(quote_ident(rolname), 'PUBLIC')))
         FROM pg_namespace AS n CROSS JOIN LATERAL (
             SELECT 'pg_namespace'::regclass, n.oid, 0, coalesce(nspacl, acldefault('n', nspowner))
             UNION ALL
             SELECT 'pg_class'::regclass, oid, 0,
                    coalesce(relacl, acldefault((CASE relkind WHEN 'S' THEN 's' ELSE 'r' END)::\"char\", relowner))
             FROM pg_class WHERE relnamespace = n.oid
             UNION ALL
             SELECT 'pg_class'::regclass, attrelid, attnum, attacl
             FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid WHERE relnamespace = n.oid AND NOT attisdropped
             UNION ALL
             SELECT 'pg_proc'::regclass, oid, 0, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc WHERE pronamespace = n.oid
             UNION ALL
             SELECT 'pg_type'::regclass, oid, 0, coalesce(typacl, acldefault('T', typowner)) FROM pg_type
             WHERE typnamespace = n.oid AND typtype <> 'm'
             UNION ALL
             SELECT 'pg_default_acl'::regclass, oid, 0, defaclacl FROM pg_default_acl WHERE defaclnamespace = n.oid
         ) AS o (class, object, part, acl) CROSS JOIN aclexplode(acl) JOIN pg_database ON datname = current_database()
              LEFT JOIN pg_roles AS r ON r.oid = CASE grantee WHEN 'pg_database_owner'::regrole THEN datdba ELSE grantee END
         WHERE nspname = {schema} AND privilege_type <> 'MAINTAIN'"
    )
}

/// Compares such lines of the original and the copy: a dump does not say that an object has only the rights that it has
/// by default, and the default privileges of the role that restores it add to these.
pub fn compare(original: &str, copy: &str) -> Result {
    let [original, copy] =
        [original, copy].map(|line| -> BTreeSet<String> { serde_json::from_str(line).unwrap_or_default() });
    let differ: Vec<_> = original.symmetric_difference(&copy).take(5).map(|right| said(right)).collect();
    refuse_any(
        &differ.join(", "),
        "only the original or only the copy would have these rights",
        "No move was begun. Give rights to roles by name, and take back what ALTER DEFAULT PRIVILEGES has changed on the target.",
    )
}
