//! The columns whose defaults mint ids, and the ids in them. They are found by the C symbols of the library, because
//! only superusers can create C functions. No function of the database is called, and no expression evaluated or
//! deparsed.

use std::collections::{HashMap, HashSet};
use std::fmt;

use idgen_ids::id;
use idgen_ids::js;
use pg_formats::tree::calls;

use crate::connection::session::Session;
use crate::idgen::library;
use crate::terminal::error::{Error, Result};
use crate::terminal::output::note;
use crate::terminal::text::quoted;

/// The C symbols of minting functions.
const MINTING: [(&str, Mints); 3] = [
    ("snowflake_next_id_wrapper", Mints::Idgen),
    ("snowflake_next_id_js_wrapper", Mints::Js),
    ("snowflake_next_id_of_session_wrapper", Mints::OfSession),
];

/// What the default of a column mints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mints {
    /// Ids of idgen's layout, for the shard of the default.
    Idgen,
    /// Ids of 53 bits.
    Js,
    /// Ids of idgen's layout, for the shard of the session.
    OfSession,
}

/// A column whose default mints, in a permanent table, partition, foreign table or view.
#[derive(Debug, Clone)]
pub struct Column {
    pub schema: String,
    pub table: String,
    pub column: String,
    /// The OID of the table.
    pub relation: u32,
    pub mints: Mints,
    /// The shard, if the default names exactly one, as a constant.
    pub shard: Option<i32>,
    pub type_name: String,
    pub owner: String,
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = [&*self.schema, &self.table, &self.column].join(".");
        // Others must not pass for the text around them.
        let is_plain = name.chars().all(|c| matches!(c, '_' | '.' | '0'..='9' | 'a'..='z'));
        f.write_str(&if is_plain { name } else { quoted(&name) })
    }
}

/// The minting columns in a session's database.
pub fn minting(session: &Session) -> Result<Vec<Column>> {
    let symbols = MINTING.map(|(symbol, _)| Session::literal(symbol)).join(", ");
    // Larger defaults are not written by hand, and decompressed they could have a gigabyte. C always has the OID 13.
    let sql = format!(
        "WITH uses AS MATERIALIZED (
             SELECT classid, objid, concat(classid::oid, ' ', objid) AS object,
                    string_agg(concat(p.oid, ' ', prosrc), ',') AS functions
             FROM pg_proc AS p JOIN pg_depend ON refclassid = 'pg_proc'::regclass AND refobjid = p.oid
             WHERE prolang = 13 AND prosrc IN ({symbols})
               AND classid IN ('pg_attrdef'::regclass, 'pg_type'::regclass)
             GROUP BY classid, objid
         ), found AS (
             SELECT adrelid AS relation, adnum AS number, adbin AS tree, functions, object
             FROM uses JOIN pg_attrdef AS d ON classid = 'pg_attrdef'::regclass AND d.oid = objid
             UNION ALL
             SELECT attrelid, attnum, typdefaultbin, functions, object
             FROM uses JOIN pg_type AS t ON classid = 'pg_type'::regclass AND t.oid = objid
                  JOIN pg_attribute ON atttypid = t.oid AND NOT atthasdef AND NOT attisdropped
         )
         SELECT nspname, relname, attname, relation, functions,
                CASE WHEN pg_column_size(tree) < 10000
                          AND row_number() OVER (PARTITION BY object ORDER BY nspname, relname, number) = 1
                     THEN CASE WHEN octet_length(tree::text) < 100000 THEN tree::text END END,
                (WITH RECURSIVE base AS (
                     SELECT t.* FROM pg_type AS t WHERE t.oid = atttypid
                     UNION ALL
                     SELECT t.* FROM base JOIN pg_type AS t ON t.oid = base.typbasetype AND base.typtype = 'd'
                 ) SELECT format_type(oid, NULL) FROM base WHERE typtype <> 'd'), object, pg_get_userbyid(relowner)
         FROM found JOIN pg_class AS c ON c.oid = relation AND relpersistence <> 't' AND relkind IN ('r', 'p', 'f', 'v')
              JOIN pg_namespace AS n ON n.oid = relnamespace
              JOIN pg_attribute AS a ON attrelid = relation AND attnum = number
         ORDER BY nspname, relname, number"
    );
    let rows = match session.run(&sql) {
        // Names that cannot be converted to UTF-8 are shown as well as possible.
        Err(error) if error.code() == "22P05" => {
            session.run("SET client_encoding = SQL_ASCII")?;
            let rows = session.run(&sql);
            session.run("SET client_encoding = UTF8")?;
            rows
        }
        rows => rows,
    }?;
    // The default of a domain is sent once, with the first of its columns.
    let mut trees = HashMap::new();
    Ok(rows
        .iter()
        .map(|row| {
            let functions = row.string(4);
            let functions = functions.split(',').filter_map(|pair| {
                let (oid, symbol) = pair.split_once(' ')?;
                let mints = MINTING.iter().find(|(name, _)| *name == symbol)?.1;
                Some((oid.parse().ok()?, mints))
            });
            let functions: Vec<(u32, Mints)> = functions.collect();
            let oids: Vec<u32> = functions.iter().map(|(oid, _)| *oid).collect();
            let calls = trees.entry(row.string(7)).or_insert_with(|| calls(row.string(5).as_bytes(), &oids));
            let shard = calls.first().and_then(|(_, shard)| *shard);
            Column {
                schema: row.string(0),
                table: row.string(1),
                column: row.string(2),
                relation: row.number(3).unwrap_or_default(),
                mints: functions.iter().map(|(_, mints)| *mints).max().unwrap_or(Mints::Idgen),
                shard: shard.filter(|_| calls.iter().all(|(_, other)| *other == shard)),
                type_name: row.string(6),
                owner: row.string(8),
            }
        })
        .collect())
}

/// The tables that hold the rows of a table: itself, its partitions and its children.
const LEAVES: &str = "
    WITH RECURSIVE tree AS (
        SELECT $1::oid AS relation UNION SELECT inhrelid FROM tree JOIN pg_inherits ON inhparent = relation
    )
    SELECT format('%I.%I', nspname, relname), relkind = 'r'
    FROM tree JOIN pg_class AS c ON c.oid = relation JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE relkind IN ('r', 'f')";

/// Ids further ahead of the clock than this, in milliseconds, do not count.
const FAR: i64 = 60_000;

/// An upper bound of the ids in these columns, of both layouts. Values that are not ids, or too far ahead of the
/// server's clock, are reported and do not count. Values are read by COPY from ordinary tables, which runs no view, and
/// plans no query: planning would evaluate constant expressions of indexes.
pub fn greatest_id(session: &Session, columns: &[Column]) -> Result<i64> {
    let state = library::state(session)?;
    let epoch = state.as_ref().and_then(|state| state.epoch_ms).ok_or_else(|| {
        Error::refused(format!("{} does not show its epoch", session.server()), "Run idgenctl check.")
    })?;
    let ahead = state.and_then(|state| state.max_ahead_ms).unwrap_or(0);
    let now = session.value("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[])?;
    let now: i64 = now.parse().unwrap_or(0);
    let tick = now.saturating_sub(epoch).saturating_add(ahead.max(0)).saturating_add(FAR);
    let far = id::max_id(u64::try_from(tick).unwrap_or(0).min(id::MAX_TICK));
    let (mut greatest, mut seen) = (0, HashSet::new());
    // The owner may have locked a table, and clients may be waiting for the end of a move.
    session.run("SET lock_timeout = '10s'")?;
    for column in columns {
        for table in session.query(LEAVES, &[&column.relation.to_string()])?.iter() {
            let name = table.string(0);
            // Columns of partitions are also listed by themselves.
            if !seen.insert((name.clone(), &column.column)) {
                continue;
            }
            if !table.is_true(1) {
                note(format!("warning: ids in {name} are not read, because it is a foreign table"));
                continue;
            }
            let (mut example, mut count) = (None, 0_u64);
            let copy = format!("COPY {name} ({}) TO STDOUT", Session::identifier(&column.column));
            session.copy_out(&copy, |line| match id_in(line, column.mints) {
                _ if line == b"\\N" => {}
                Some(id) if id <= far => greatest = greatest.max(id),
                _ => {
                    example.get_or_insert_with(|| {
                        String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned()
                    });
                    count += 1;
                }
            })?;
            if let Some(example) = example {
                note(format!(
                    "warning: values in {name} do not count, because they are not ids, or far ahead of the clock: {count}, \
                     such as {example}"
                ));
            }
        }
    }
    Ok(greatest)
}

/// The id that a value of any type contains, as text; for one of 53 bits, the greatest 64-bit id of its second.
fn id_in(text: &[u8], mints: Mints) -> Option<i64> {
    let text = str::from_utf8(text).ok()?;
    let id = text.parse().or_else(|_| text.parse().map(|id: f64| id as i64)).ok()?;
    if mints != Mints::Js {
        return Some(id);
    }
    let second = u64::try_from(id).unwrap_or(0) >> (js::SHARD_BITS + js::SEQUENCE_BITS);
    Some(id::max_id((second * js::UNIT_MS + js::UNIT_MS - 1).min(id::MAX_TICK)))
}

#[cfg(test)]
mod tests {
    use super::{Mints, id_in};

    /// Promise: ids in columns of any type count, and other values do not stop the reading.
    #[test]
    fn ids_of_any_type_are_read() {
        let ids = ["503559462699670554", "1.5e3", "-7", "9e99", "", "a", "\u{e9}"];
        let read = [Some(503_559_462_699_670_554), Some(1500), Some(-7), Some(i64::MAX), None, None, None];
        assert_eq!(ids.map(|id| id_in(id.as_bytes(), Mints::Idgen)), read);
        assert_eq!(id_in(b"\xff", Mints::Idgen), None);
        assert_eq!(id_in(b"1048577", Mints::Js).map(idgen_ids::id::decode).map(|id| id.tick), Some(1999));
    }
}
