//! With whose rights the schema is restored. A restore runs what others have written: a CHECK constraint, for example, can
//! call a function of its owner. So a superuser restores only what belongs to superusers.

use super::Plan;
use super::checks::refused;
use crate::connection::session::Session;
use crate::terminal::error::Result;

/// Begins a query with the objects that the schema `$1` consists of, with those that they use if `$2`.
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

/// Begins a transaction, checks what the schema of this name uses, here and on the target, and gives the session with its
/// snapshot for pg_dump. That reads this very snapshot, so nobody can add something in between.
pub fn look_at(plan: &Plan<'_>, name: &str) -> Result<(Session, String)> {
    let session = plan.source.primary().session()?;
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    let snapshot = format!("--snapshot={}", session.value("SELECT pg_export_snapshot()", &[])?);
    if plan.owner.is_none() {
        refuse_strangers(&session, name)?;
    }
    refuse_names_of_others(plan, &session, name)?;
    Ok((session, snapshot))
}

/// Refuses what a superuser must not restore.
fn refuse_strangers(session: &Session, name: &str) -> Result {
    let strangers = session.value(
        &format!(
            "{USED}
             SELECT string_agg(what, ', ')
             FROM (SELECT DISTINCT format('%s of %s', pg_describe_object(classid, objid, 0), rolname)
                   FROM this, used JOIN pg_shdepend AS s USING (classid, objid) JOIN pg_roles AS r ON r.oid = s.refobjid
                   WHERE s.deptype = 'o' AND NOT rolsuper
                     AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                     AND (classid <> 'pg_namespace'::regclass OR objid = this.schema)
                   LIMIT 5) AS found (what)"
        ),
        &[name, "t"],
    )?;
    if !strangers.is_empty() {
        return refused(
            format!("a superuser must not restore what others may have written: {strangers}"),
            "To restore it with the rights of its owner, give --owner. If several roles own parts, name a member of all.",
        );
    }
    // The catalog knows what a function uses only if its body was parsed when it was created.
    let called = session.value(
        &format!(
            "{USED}
             SELECT string_agg(DISTINCT p.oid::regprocedure::text, ', ')
             FROM used AS f JOIN pg_proc AS p ON f.classid = 'pg_proc'::regclass AND p.oid = f.objid
                  JOIN pg_language AS l ON l.oid = prolang AND lanname NOT IN ('internal', 'c')
                  JOIN pg_depend AS d ON d.refclassid = f.classid AND d.refobjid = p.oid
                  JOIN used AS u ON u.classid = d.classid AND u.objid = d.objid
                  LEFT JOIN pg_attrdef AS a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
                  LEFT JOIN pg_attribute AS c ON c.attrelid = adrelid AND c.attnum = adnum
             WHERE prosqlbody IS NULL AND d.classid NOT IN ('pg_trigger'::regclass, 'pg_policy'::regclass)
               AND attgenerated IS DISTINCT FROM ''"
        ),
        &[name, "t"],
    )?;
    if called.is_empty() {
        return Ok(());
    }
    refused(
        format!(
            "a restore may call functions whose bodies may find what others have on the target: {called}"
        ),
        "A superuser must not call them. Give the schema to an ordinary role, and use --owner.",
    )
}

/// Refuses to restore what refers to objects outside the schema by names that the target may find something of others by.
fn refuse_names_of_others(plan: &Plan<'_>, session: &Session, name: &str) -> Result {
    let names = session.value(
        &format!(
            "{USED}
             SELECT coalesce(json_agg(DISTINCT jsonb_build_array(nspname, name)), '[]')
             FROM this, used, LATERAL (
                 SELECT pronamespace, proname FROM pg_proc WHERE classid = 'pg_proc'::regclass AND oid = objid
                 UNION ALL
                 SELECT typnamespace, typname FROM pg_type WHERE classid = 'pg_type'::regclass AND oid = objid
                 UNION ALL
                 SELECT oprnamespace, oprname FROM pg_operator WHERE classid = 'pg_operator'::regclass AND oid = objid
                 UNION ALL
                 SELECT relnamespace, relname FROM pg_class WHERE classid = 'pg_class'::regclass AND oid = objid
             ) AS named (namespace, name) JOIN pg_namespace AS n ON n.oid = namespace
             WHERE namespace <> this.schema AND nspname <> 'pg_toast'"
        ),
        &[name, "t"],
    )?;
    let owner = plan.owner_role()?;
    let others = plan.target.primary().value(
        "SELECT string_agg(DISTINCT what, ', ')
         FROM json_array_elements($1::json) AS name
              JOIN pg_namespace AS n ON nspname = name->>0, LATERAL (
             SELECT format('schema %I, in which %I may create objects', nspname, rolname) FROM pg_roles
             WHERE NOT (rolsuper OR CASE WHEN $2 <> '' THEN pg_has_role($2::name, oid, 'MEMBER') ELSE false END)
               AND rolname <> 'pg_database_owner'
               AND has_schema_privilege(oid, n.oid, 'CREATE')
             UNION ALL
             SELECT format('%I.%I of %I', nspname, found, rolname)
             FROM (SELECT proname, proowner FROM pg_proc WHERE pronamespace = n.oid
                   UNION ALL SELECT typname, typowner FROM pg_type WHERE typnamespace = n.oid
                   UNION ALL SELECT oprname, oprowner FROM pg_operator WHERE oprnamespace = n.oid
                   UNION ALL SELECT relname, relowner FROM pg_class WHERE relnamespace = n.oid) AS o (found, owner)
                  JOIN pg_roles AS r ON r.oid = owner
             WHERE found = name->>1
               AND NOT (rolsuper OR CASE WHEN $2 <> '' THEN pg_has_role($2::name, r.oid, 'MEMBER') ELSE false END)) AS found (what)",
        &[&names, &owner],
    )?;
    if others.is_empty() {
        return Ok(());
    }
    let restorer = if owner.is_empty() { "a superuser" } else { &owner };
    refused(
        format!("{restorer} must not restore what may use objects of others on the target: {others}"),
        "Have these roles drop them, and REVOKE CREATE ON SCHEMA. Or give the schema to an ordinary role, and use --owner.",
    )
}

/// Names all roles at once that the target lacks, but for the role of initdb: the catalog does not record what belongs to it.
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
    if missing.is_empty() {
        return Ok(());
    }
    refused(format!("the target lacks roles that the schema names: {missing}"), "Create them there.")
}

/// Checks the connection of the owner.
pub fn check_owner(plan: &Plan<'_>) -> Result {
    let Some(owner) = &plan.owner else { return Ok(()) };
    let place = "SELECT concat_ws(' ', current_database(), pg_postmaster_start_time())";
    let is_there = owner.value(place, &[])? == plan.target.primary().value(place, &[])?;
    if is_there && owner.value("SHOW is_superuser", &[])? == "off" {
        return Ok(());
    }
    refused(
        "--owner must connect to the same database as the target, and not as a superuser",
        "Give the connection string of the target with another user, or leave it out if the schema belongs to superusers.",
    )
}
