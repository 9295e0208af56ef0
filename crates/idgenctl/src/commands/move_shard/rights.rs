//! With whose rights the schema is restored. A restore runs what others have written: a CHECK constraint, for example, can
//! call a function of its owner. So a superuser restores only what belongs to superusers.

use super::Move;
use crate::terminal::error::{Error, Result};

/// Begins a query with the objects that the schema `$1` consists of, or uses.
const USED: &str = "
    WITH RECURSIVE this AS (SELECT oid AS schema FROM pg_namespace WHERE nspname = $1),
    used (classid, objid) AS (
        SELECT 'pg_namespace'::regclass::oid, schema FROM this
        UNION
        SELECT next.*
        FROM this, used, LATERAL (
            SELECT refclassid, refobjid FROM pg_depend AS d WHERE d.classid = used.classid AND d.objid = used.objid
            UNION ALL
            SELECT d.classid, d.objid FROM pg_depend AS d
            WHERE d.refclassid = used.classid AND d.refobjid = used.objid
              AND (d.deptype IN ('a', 'i', 'P', 'S')
                   OR used.classid = 'pg_namespace'::regclass AND used.objid = this.schema)) AS next (classid, objid)
        WHERE next.classid <> 'pg_extension'::regclass)";

impl Move<'_> {
    /// Whether a superuser restores the schema.
    fn restores_as_superuser(&self) -> bool {
        self.owner.is_none()
    }

    /// Begins a transaction in the session that holds the lock, checks what the schema of this name uses, and gives the
    /// snapshot. The dump reads this very snapshot, so nobody can add something in between.
    pub fn look_at(&self, name: &str) -> Result<String> {
        self.in_lock(|lock| {
            lock.run("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
            let snapshot = lock.value("SELECT pg_export_snapshot()", &[])?;
            if !self.restores_as_superuser() {
                return Ok(snapshot);
            }
            let strangers = lock.value(
                &format!(
                    "{USED}
                     SELECT string_agg(what, ', ')
                     FROM (SELECT DISTINCT format('%s of %s', pg_describe_object(classid, objid, 0), rolname)
                           FROM this, used JOIN pg_shdepend AS s USING (classid, objid)
                                JOIN pg_roles AS r ON r.oid = s.refobjid
                           WHERE s.deptype = 'o' AND NOT rolsuper
                             AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                             AND (classid <> 'pg_namespace'::regclass OR objid = this.schema)
                           LIMIT 5) AS found (what)"
                ),
                &[name],
            )?;
            if strangers.is_empty() {
                return Ok(snapshot);
            }
            Err(Error::refused(
                format!("a superuser must not restore what others may have written: {strangers}"),
                "To restore it with the rights of its owner, give --owner. If several roles own parts, name a member of all.",
            ))
        })
    }

    /// Ends that transaction.
    pub fn look_away(&self) -> Result {
        self.in_lock(|lock| lock.run("COMMIT").map(drop))
    }

    /// Refuses to restore as a superuser what refers to objects outside the schema by names that the target may find
    /// something of others by.
    pub fn check_names_on_target(&self) -> Result {
        if !self.restores_as_superuser() {
            return Ok(());
        }
        let names = self.source.primary().value(
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
            &[&self.schema],
        )?;
        let others = self.target.primary().value(
            "SELECT string_agg(DISTINCT what, ', ')
             FROM json_array_elements($1::json) AS name
                  JOIN pg_namespace AS n ON nspname = name->>0, LATERAL (
                 SELECT format('schema %I, in which %I may create objects', nspname, rolname) FROM pg_roles
                 WHERE NOT rolsuper AND rolname <> 'pg_database_owner' AND has_schema_privilege(oid, n.oid, 'CREATE')
                 UNION ALL
                 SELECT format('%I.%I of %I', nspname, found, rolname)
                 FROM (SELECT proname, proowner FROM pg_proc WHERE pronamespace = n.oid
                       UNION ALL SELECT typname, typowner FROM pg_type WHERE typnamespace = n.oid
                       UNION ALL SELECT oprname, oprowner FROM pg_operator WHERE oprnamespace = n.oid
                       UNION ALL SELECT relname, relowner FROM pg_class WHERE relnamespace = n.oid) AS o (found, owner)
                      JOIN pg_roles AS r ON r.oid = owner
                 WHERE found = name->>1 AND NOT rolsuper) AS found (what)",
            &[&names],
        )?;
        if others.is_empty() {
            return Ok(());
        }
        Err(Error::refused(
            format!("a superuser must not restore what may use objects of others on the target: {others}"),
            "Have these roles drop them, and REVOKE CREATE ON SCHEMA. Or give the schema to an ordinary role, and use --owner.",
        ))
    }

    /// Checks the connection of the owner.
    pub fn check_owner(&self) -> Result {
        let Some(owner) = &self.owner else { return Ok(()) };
        let place = "SELECT concat_ws(' ', current_database(), pg_postmaster_start_time())";
        let session = owner.fresh()?;
        if session.value(place, &[])? != self.target.primary().value(place, &[])? {
            return Err(Error::refused(
                "--owner must connect to the same database as the target",
                "Give the connection string of the target with another user.",
            ));
        }
        if session.value("SHOW is_superuser", &[])? != "off" {
            return Err(Error::refused(
                "--owner must not connect as a superuser",
                "Leave it out if the schema belongs to superusers.",
            ));
        }
        Ok(())
    }
}
