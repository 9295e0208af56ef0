//! Ids: the greatest of the source, and the clock of the target that has to pass them.

use std::collections::HashSet;
use std::time::Duration;

use super::sides::{PATIENCE, Place};
use super::{Move, say};
use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};
use crate::terminal::signals;

/// Clients wait for a clock that is behind for no longer than this while the schema is closed, in seconds.
const CLIENTS_WAIT: f64 = 6.0;
/// For so long the program waits before it closes the schema.
const WE_WAIT: f64 = 60.0;

/// The tables with rows of the table `t`. Values are read by COPY of ordinary tables. It runs no view, and plans no query,
/// which would evaluate constant expressions of indexes with the rights of whoever reads.
const LEAVES: &str = "
    LATERAL (SELECT t.oid AS leaf WHERE t.relkind = 'r' UNION
             SELECT relid FROM pg_partition_tree(t.oid) JOIN pg_class AS c ON c.oid = relid WHERE c.relkind = 'r') AS leaves";

/// The high-water mark of the source.
#[derive(Clone, Copy)]
pub struct Mark {
    /// The greatest id below it.
    greatest: i64,
    /// The first second, since 1970, that is past it.
    second: f64,
}

impl Move<'_> {
    /// The mark now. Every id that the source has minted is below it.
    pub fn mark(&self) -> Result<Mark> {
        let rows = self.source.primary().query(
            &format!(
                "SELECT coalesce({}(mark_at), 0), coalesce(extract(epoch FROM mark_at) + 1, 0) FROM {}",
                self.idgen.name("snowflake_max_id"),
                self.idgen.name("idgen_status")
            ),
            &[],
        )?;
        let row = rows.row(0);
        match (row.number(0), row.number(1)) {
            (Some(greatest), Some(second)) => Ok(Mark { greatest, second }),
            _ => Err(Error::refused("the source does not show its high-water mark", "Run idgenctl check.")),
        }
    }

    /// The greatest of the ids below a mark and of those in the rows on a server, because ids from elsewhere may be greater
    /// than the mark.
    fn greatest(&self, place: &Place<'_>, mark: Mark) -> Result<i64> {
        let mut greatest = mark.greatest;
        let copies = place.query(
            &format!(
                "SELECT DISTINCT format('COPY %s (%I) TO STDOUT', leaf::regclass, c.\"column\")
                 FROM {}() AS c
                      JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attname = c.\"column\"
                      JOIN pg_class AS t ON t.oid = c.relation, {LEAVES}
                 WHERE c.\"schema\" IN ($1, $2) AND a.atttypid = 'bigint'::regtype",
                self.idgen.name("idgen_columns")
            ),
            &[&self.schema, &self.moving],
        )?;
        let session = place.session()?;
        session.set_patience(None);
        for copy in copies.iter() {
            session.copy_out(&copy.string(0), |line| {
                let id = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
                greatest = greatest.max(id.unwrap_or(0));
            })?;
        }
        session.set_patience(Some(PATIENCE));
        Ok(greatest)
    }

    /// Whether the shard has ids of `snowflake_next_id_js`.
    fn has_js_ids(&self) -> Result<bool> {
        let answer = self.source.primary().value(
            &format!(
                "SELECT EXISTS (SELECT FROM {} WHERE shard = $1::integer AND layout = 'js53')
                        OR EXISTS (SELECT FROM {} WHERE \"schema\" IN ($2, $3, $4)
                                                    AND expression LIKE '%snowflake_next_id_js%')",
                self.idgen.name("idgen_shard_stats"),
                self.idgen.name("idgen_columns")
            ),
            &[&self.shard_text(), &self.schema, &self.moving, &self.moved],
        )?;
        Ok(answer == "t")
    }

    /// The second, since 1970, that the clock of the target shows or may mint for; and the clock of the source.
    fn clocks(&self, has_js: bool) -> Result<(f64, f64)> {
        let now = |place: &Place<'_>, ahead: &str| -> Result<f64> {
            let text =
                place.value(&format!("SELECT extract(epoch FROM clock_timestamp() + {ahead})"), &[])?;
            Ok(text.parse().unwrap_or(0.0))
        };
        // Ids of snowflake_next_id_js begin with the second that the clock shows. Others may be ahead of it.
        let ahead = if has_js { "interval '-1 s'" } else { "current_setting('idgen.max_ahead')::interval" };
        Ok((now(self.target.primary(), ahead)?, now(self.source.primary(), "interval '0 s'")?))
    }

    /// Refuses a target whose clock is so far behind that clients would have to wait. Gives the second that it must
    /// reach before the schema is closed: that of the ids that there are by now.
    pub fn check_clock(&self) -> Result<(f64, bool)> {
        let past = self.greatest(self.source.primary(), self.mark()?)?;
        let latest = self.source.primary().value(
            &format!("SELECT extract(epoch FROM {}($1::bigint))", self.idgen.name("snowflake_time")),
            &[&past.to_string()],
        )?;
        let latest: f64 = latest.parse().unwrap_or(0.0);
        let has_js = self.has_js_ids()?;
        let (target, source) = self.clocks(has_js)?;
        // Whenever the source mints, its mark is up to 4 s ahead of its clock, which waiting does not change.
        let clients = source + (latest - source).clamp(0.0, 4.0) - target;
        if clients > CLIENTS_WAIT {
            return Err(Error::refused(
                format!(
                    "the clock of the target is too far behind that of the source: clients would wait {clients:.1} s"
                ),
                "Set the clocks.",
            ));
        }
        let ahead = latest - target;
        if ahead > WE_WAIT {
            return Err(Error::refused(
                format!("the clock of the target is too far behind the ids of the source: by {ahead:.1} s"),
                "Set the clocks, or look for ids from the future in the rows.",
            ));
        }
        Ok((latest, has_js))
    }

    /// Waits until the target may mint past the ids that there are by now, while clients still work.
    pub fn wait_for_clock(&self) -> Result {
        let (latest, has_js) = self.check_clock()?;
        let mut has_said = false;
        loop {
            let (target, _) = self.clocks(has_js)?;
            let left = latest - target;
            if left <= 0.0 {
                return Ok(());
            }
            if !has_said {
                has_said = true;
                say(format!(
                    "waiting {left:.1} s until the clock of the target has passed the ids of the source"
                ));
            }
            signals::pause(Duration::from_secs_f64(left.min(1.0)))?;
        }
    }

    /// Makes ids of the target greater than those of the source, whose mark was read when it did not mint for the shard any
    /// more.
    pub fn advance(&self, mark: Mark) -> Result {
        let target = self.target.primary();
        let past = self.greatest(target, mark)?;
        say(format!("advancing the shard on the target past {past}"));
        let advance = format!("SELECT {}($1::integer, $2::bigint)", self.idgen.name("snowflake_advance"));
        for attempt in 1.. {
            match target.query(&advance, &[&self.shard_text(), &past.to_string()]) {
                Ok(_) => break,
                // A clock that is behind needs a moment to catch up.
                Err(error) if error.code() == "22023" && attempt < 30 => {
                    if attempt == 1 {
                        say(format!("waiting for the clock of the target: {error}"));
                    }
                    signals::pause(Duration::from_secs(1))?;
                }
                Err(error) => return Err(error),
            }
        }

        // Ids of snowflake_next_id_js are not advanced.
        if !self.has_js_ids()? {
            return Ok(());
        }
        say("waiting until the target's clock has passed the last second of the source");
        loop {
            let now = target.value("SELECT extract(epoch FROM clock_timestamp())", &[])?;
            let left = mark.second - now.parse().unwrap_or(0.0);
            if left <= 0.0 {
                return Ok(());
            }
            signals::pause(Duration::from_secs_f64(left.min(1.0)))?;
        }
    }

    /// Refuses a target without the rows outside the schema that its foreign keys reference.
    pub fn check_foreign_keys(&self) -> Result {
        let side = |relation: &str, key: &str| {
            format!(
                "(SELECT json_build_object('schema', nspname, 'table', relname, 'columns', columns)
                  FROM pg_class AS t JOIN pg_namespace AS n ON n.oid = t.relnamespace,
                       (SELECT json_agg(attname ORDER BY n) FROM unnest({key}) WITH ORDINALITY AS key (attnum, n)
                             JOIN pg_attribute AS a USING (attnum) WHERE attrelid = {relation}) AS c (columns)
                  WHERE t.oid = {relation})"
            )
        };
        let keys = self.source.primary().query(
            &format!(
                "SELECT {}, {}, conname
                 FROM pg_constraint AS k
                      JOIN pg_class AS c ON c.oid = conrelid
                      JOIN pg_class AS r ON r.oid = confrelid AND r.relnamespace <> c.relnamespace
                      JOIN pg_namespace AS s ON s.oid = c.relnamespace
                 WHERE s.nspname = $1 AND contype = 'f' AND conparentid = 0 AND k.convalidated",
                side("conrelid", "conkey"),
                side("confrelid", "confkey")
            ),
            &[&self.schema],
        )?;
        for key in keys.iter() {
            let mut missing: HashSet<Vec<u8>> = HashSet::new();
            rows_of(self.source.primary(), &key.string(0), |row| {
                if row.split(|byte| *byte == b'\t').all(|field| field != b"\\N") {
                    missing.insert(row.to_vec());
                }
            })?;
            if missing.is_empty() {
                continue;
            }
            rows_of(self.target.primary(), &key.string(1), |row| {
                missing.remove(row);
            })?;
            if !missing.is_empty() {
                return Err(Error::refused(
                    format!(
                        "foreign key {}: the target lacks {} of the rows that it references",
                        key.string(2),
                        missing.len()
                    ),
                    "Copy them there first.",
                ));
            }
        }
        Ok(())
    }
}

/// The rows of a table's columns, which are given in JSON.
fn rows_of(place: &Place<'_>, wanted: &str, mut each: impl FnMut(&[u8])) -> Result {
    let session: std::rc::Rc<Session> = place.session()?;
    let copies = session.query(
        &format!(
            "SELECT format('COPY %s (%s) TO STDOUT', leaf::regclass,
                           (SELECT string_agg(quote_ident(name), ', ' ORDER BY n)
                            FROM json_array_elements_text(wanted->'columns') WITH ORDINALITY AS c (name, n)))
             FROM (SELECT $1::json AS wanted) AS w
                  JOIN pg_namespace AS n ON nspname = wanted->>'schema'
                  JOIN pg_class AS t ON relnamespace = n.oid AND relname = wanted->>'table', {LEAVES}"
        ),
        &[wanted],
    )?;
    session.set_patience(None);
    for copy in copies.iter() {
        session.copy_out(&copy.string(0), &mut each)?;
    }
    session.set_patience(Some(PATIENCE));
    Ok(())
}
