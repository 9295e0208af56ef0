//! The greatest id in the tables of a server.

use std::time::{Duration, Instant};

use idgen_ids::id::{MAX_TICK, SEQUENCE_BITS, SHARD_BITS};
use idgen_ids::{Tick, js};

use crate::error::{Error, Result};
use crate::extension::{Installation, Installations};
use crate::output::note;
use crate::session::Session;

/// How often the progress is shown.
const SHOW: Duration = Duration::from_secs(5);

/// What the tables say.
#[derive(Default)]
pub struct Reading {
    /// The greatest id, if there is one.
    pub greatest: Option<Greatest>,
    /// How many columns were read.
    pub columns: usize,
    /// How many ids were read.
    pub ids: u64,
    /// Whether there are columns of snowflake_next_id_js, or databases that may have some.
    pub has_js: bool,
    /// The columns that were not read, with the reason.
    pub columns_not_read: Vec<(String, String)>,
    /// The databases that were not looked at, with the reason.
    pub databases_not_read: Vec<(String, String)>,
}

/// The greatest id.
pub struct Greatest {
    /// Its time.
    pub tick: Tick,
    /// The column that has it.
    pub column: String,
}

/// A column whose default mints.
struct Column {
    schema: String,
    table: String,
    column: String,
    /// Whether the default calls snowflake_next_id_js.
    js: bool,
    /// Why it is not read, if it is not.
    not_read: Option<String>,
}

/// Reads each `bigint` column of ordinary tables and partitions whose default mints, in all databases.
///
/// Of what others have made, only the rows are read: COPY evaluates no view, policy, index expression or domain, and only
/// columns are read whose type is written by the function of `bigint`. It runs in the server's sessions as a scan does, and
/// needs no more of its memory.
///
/// # Errors
/// Those of the sessions; that a table is locked; and that the extension is to be updated.
pub fn read(found: &Installations) -> Result<Reading> {
    let mut reading = Reading::default();
    for (database, error) in &found.not_seen {
        reading.databases_not_read.push((database.clone(), error.to_string()));
    }
    for place in &found.there {
        if !place.extension.others.is_empty() {
            let why = format!(
                "roles that are not superusers may change the schema of the extension: {}",
                place.extension.others.join(", ")
            );
            reading.databases_not_read.push((place.database.clone(), why));
            continue;
        }
        if place.extension.available.as_ref().is_some_and(|files| *files != place.extension.version) {
            return Err(Error::refused(
                format!(
                    "database \"{}\" of {} has idgen {}, and the files are of {}",
                    place.database,
                    place.session.server(),
                    place.extension.version,
                    place.extension.available.as_deref().unwrap_or_default()
                ),
                "Run ALTER EXTENSION idgen UPDATE in each database that has it, then this command again.",
            ));
        }
        // Whoever waits behind a lock in turn would not know why.
        place.session.run("SET lock_timeout = '10s'")?;
        for column in columns(place)? {
            reading.has_js |= column.js;
            read_column(place, &column, &mut reading)?;
        }
    }
    // Nobody knows what they have.
    reading.has_js |= !reading.databases_not_read.is_empty();
    Ok(reading)
}

/// The columns whose default mints, those of partitions and children too.
fn columns(place: &Installation) -> Result<Vec<Column>> {
    let rows = place.session.run(&format!(
        "WITH RECURSIVE tables AS (
             SELECT relation, \"column\", max_shard = 255 AS js FROM {}()
             UNION SELECT inhrelid, \"column\", js FROM tables JOIN pg_inherits ON inhparent = relation)
         SELECT nspname, relname, \"column\", bool_or(js), relkind, typoutput = 'int8out'::regproc, attgenerated
         FROM tables JOIN pg_class AS c ON c.oid = relation JOIN pg_namespace AS n ON n.oid = relnamespace
              JOIN pg_attribute ON attrelid = c.oid AND attname = \"column\" JOIN pg_type AS t ON t.oid = atttypid
         WHERE relkind <> 'p' OR typoutput <> 'int8out'::regproc
         GROUP BY 1, 2, 3, 5, 6, 7 ORDER BY 1, 2, 3",
        place.extension.name("idgen_columns")
    ))?;
    Ok(rows
        .iter()
        .map(|row| {
            let kind = row.string(4);
            let not_read = match kind.as_str() {
                "v" => Some("it is a view"),
                "f" => Some("it is a foreign table"),
                "r" | "p" if !row.is_true(5) => Some("its type is not bigint"),
                "r" if row.string(6).is_empty() => None,
                _ => Some("it is not an ordinary column"),
            };
            Column {
                schema: row.string(0),
                table: row.string(1),
                column: row.string(2),
                js: row.is_true(3),
                not_read: not_read.map(str::to_owned),
            }
        })
        .collect())
}

fn read_column(place: &Installation, column: &Column, reading: &mut Reading) -> Result {
    let name = format!("{}.{}.{} of database {}", column.schema, column.table, column.column, place.database);
    if let Some(why) = &column.not_read {
        reading.columns_not_read.push((name, why.clone()));
        return Ok(());
    }
    let copy = format!(
        "COPY {}.{} ({}) TO STDOUT",
        Session::identifier(&column.schema),
        Session::identifier(&column.table),
        Session::identifier(&column.column)
    );
    let (mut greatest, mut ids, mut odd) = (None, 0u64, None);
    let mut shown = Instant::now();
    let read = place.session.copy_out(&copy, |line| {
        match std::str::from_utf8(line) {
            Ok("\\N") => return,
            Ok(text) => match text.parse::<i64>() {
                Ok(id) => greatest = greatest.max(tick_of(id, column.js)),
                Err(_) => odd = Some(text.to_owned()),
            },
            Err(_) => odd = Some("bytes that are no text".into()),
        }
        ids += 1;
        // The clock is not asked for every row.
        if ids % 65536 == 0 && shown.elapsed() >= SHOW {
            shown = Instant::now();
            note(format!("reading {name}: {ids} ids so far"));
        }
    });
    match read {
        Ok(()) => {}
        Err(error) if matches!(error.code(), "42P01" | "42703" | "3F000" | "42809") => {
            reading
                .columns_not_read
                .push((name, "it was dropped or renamed meanwhile; run this again".into()));
            return Ok(());
        }
        Err(error) if error.code() == "55P03" => {
            return Err(Error::refused(
                format!("{}: {name} is locked", place.session.server()),
                "See in pg_locks who has locked the table, and run the same command again when the lock is gone.",
            ));
        }
        Err(error) => return Err(error),
    }
    if let Some(text) = odd {
        reading.columns_not_read.push((name, format!("it has \"{text}\", which is no bigint")));
        return Ok(());
    }
    reading.columns += 1;
    reading.ids += ids;
    if let Some(tick) = greatest
        && reading.greatest.as_ref().is_none_or(|before| before.tick < tick)
    {
        reading.greatest = Some(Greatest { tick, column: name });
    }
    Ok(())
}

/// The time of an id, in milliseconds; none if idgen does not mint it. A column of snowflake_next_id_js may also have ids of
/// a default that it had before, which are all greater.
fn tick_of(id: i64, js: bool) -> Option<Tick> {
    let id = u64::try_from(id).ok()?;
    if js && id >> (js::SECOND_BITS + js::SHARD_BITS + js::SEQUENCE_BITS) == 0 {
        return Some((id >> (js::SHARD_BITS + js::SEQUENCE_BITS)) * js::UNIT_MS);
    }
    Some((id >> (SHARD_BITS + SEQUENCE_BITS)).min(MAX_TICK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of an id is exact in both layouts, up to the ends of their ranges.
    #[test]
    fn the_time_of_an_id_is_exact() {
        assert_eq!(tick_of(-1, false), None);
        assert_eq!(tick_of(8_388_607, false), Some(0));
        assert_eq!(tick_of(8_388_608, false), Some(1));
        assert_eq!(tick_of(i64::MAX, false), Some(MAX_TICK));
        assert_eq!(tick_of(i64::MAX, true), Some(MAX_TICK));
        assert_eq!(tick_of((1 << 20) - 1, true), Some(0));
        assert_eq!(tick_of(7 << 20 | 255 << 12 | 4095, true), Some(7000));
        assert_eq!(tick_of((1 << 52) - 1, true), Some(((1 << 32) - 1) * 1000));
        assert_eq!(tick_of(1 << 52, true), Some(1 << 29));
    }
}
