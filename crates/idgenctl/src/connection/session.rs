//! A session on a server, through libpq.

use std::cell::Cell;
use std::collections::HashMap;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use libpq::result::ErrorField;
use libpq::{Connection, Format, PQResult, Status};

use crate::connection::{connecting, waiting};
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::output::note;
use crate::terminal::signals::go_on;
use crate::terminal::text::{cut, quoted};

/// How long a session waits for an answer by default.
const PATIENCE: Duration = Duration::from_secs(30);

/// Limits on the answer to one request, which no statement of this program reaches.
const MOST_RESULTS: usize = 100;
const MOST_BYTES: usize = 64 << 20;

pub struct Session {
    pub(super) connection: Connection,
    server: String,
    patience: Cell<Option<Duration>>,
    /// A deadline for all statements together.
    pub end: Cell<Option<Instant>>,
    /// For a second session, which finds out what this one waits for. Empty in that one.
    parameters: HashMap<String, String>,
}

impl Session {
    pub fn connect(server: &str, parameters: HashMap<String, String>) -> Result<Session> {
        let connection = connecting::connect(server, parameters.clone())?;
        let (patience, end) = (Cell::new(Some(PATIENCE)), Cell::new(None));
        Ok(Session { connection, server: server.into(), patience, end, parameters })
    }

    /// Refuses a database in which others have what statements of superusers might find: a trusted extension can bring
    /// functions, operators, types and views of the database's owner into pg_catalog.
    pub fn trusted(self) -> Result<Session> {
        let limit = Duration::try_from_secs_f64(connecting::limit(&self.parameters)).unwrap_or(PATIENCE);
        self.end.set(Some(Instant::now() + limit.min(PATIENCE)));
        let of_others = self.run(
            "SELECT FROM pg_catalog.pg_authid AS r JOIN (
                 SELECT pronamespace, proowner FROM pg_catalog.pg_proc UNION ALL SELECT typnamespace, typowner FROM pg_catalog.pg_type
                 UNION ALL SELECT oprnamespace, oprowner FROM pg_catalog.pg_operator
                 UNION ALL SELECT relnamespace, relowner FROM pg_catalog.pg_class
             ) AS o (namespace, owner) ON r.oid OPERATOR(pg_catalog.=) owner
             WHERE NOT rolsuper AND namespace OPERATOR(pg_catalog.=) 11::pg_catalog.oid",
        )?;
        self.end.set(None);
        if of_others.len() == 0 {
            return Ok(self);
        }
        let what = format!("a database of {} has objects of others in pg_catalog", self.server);
        refused(what, "Superusers could run them. Find out what they are, and have them dropped.")
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// The version of the server, such as 150020.
    pub fn version(&self) -> i32 {
        self.connection.server_version()
    }

    pub fn pid(&self) -> u32 {
        self.connection.backend_pid()
    }

    /// Sets how long a statement may take; none means forever. After a timeout, the session cannot be used any more.
    pub fn set_patience(&self, patience: Option<Duration>) {
        self.patience.set(patience);
    }

    /// Runs one statement with parameters `$1`, `$2`, ....
    pub fn query(&self, sql: &str, parameters: &[&str]) -> Result<Rows> {
        let texts: Vec<Vec<u8>> = parameters.iter().map(|text| [text.as_bytes(), b"\0"].concat()).collect();
        let values: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_slice())).collect();
        self.sent(|| self.connection.send_query_params(sql, &[], &values, &[], Format::Text))?;
        self.last_result()
    }

    /// Runs statements, in one transaction unless they control it themselves, and returns the rows of the last.
    pub fn run(&self, sql: &str) -> Result<Rows> {
        self.sent(|| self.connection.send_query(sql))?;
        self.last_result()
    }

    /// Runs a statement that returns one row, and returns its first value as text, or an empty text for null.
    pub fn value(&self, sql: &str, parameters: &[&str]) -> Result<String> {
        let rows = self.query(sql, parameters)?;
        match rows.len() {
            1 => Ok(rows.row(0).string(0)),
            n => Err(self.lost(format!("it sent {n} rows instead of one"))),
        }
    }

    /// What the session of this process id waits for; none if it is working, or gone.
    pub fn cause(&self, pid: u32) -> Result<Option<String>> {
        let rows = self.query(
            "SELECT coalesce(
                 (SELECT string_agg(CASE b WHEN 0 THEN (
                                        SELECT concat('a prepared transaction, one of: ', string_agg(format('%L of %I', gid, owner), ', '))
                                        FROM pg_prepared_xacts WHERE database = a.datname)
                                    ELSE format('pid %s (%s)', b, concat_ws(
                                        ', ', coalesce(quote_literal(nullif(o.application_name, '')), o.backend_type), quote_ident(o.usename),
                                        coalesce(o.state, 'no state'))) END, ', ')
                  FROM unnest(pg_blocking_pids(a.pid)) AS b LEFT JOIN pg_stat_activity AS o ON o.pid = b),
                 CASE WHEN wait_event = 'SyncRep' THEN format('synchronous standbys (synchronous_standby_names = %L)',
                                                              current_setting('synchronous_standby_names'))
                      WHEN wait_event_type <> 'Client' THEN format('%s (%s)', wait_event, wait_event_type) END)
             FROM pg_stat_activity AS a WHERE pid = $1::integer",
            &[&pid.to_string()],
        )?;
        Ok(rows.row(0).text(0))
    }

    /// Who has locked the database of this OID: new sessions there wait, and cannot be ended.
    pub fn locked(&self, database: &str) -> Result<String> {
        self.value(
            "SELECT string_agg(DISTINCT coalesce('pid ' || pid || format(' (%s)', concat_ws(', ', quote_literal(application_name), quote_ident(usename))),
                                                 'a prepared transaction'), ', ')
             FROM pg_locks AS l JOIN pg_database AS d
                  ON d.oid = CASE WHEN l.classid = 'pg_database'::regclass THEN objid
                                  WHEN relation < 16384 AND mode = 'AccessExclusiveLock' THEN database END
                  LEFT JOIN pg_stat_activity USING (pid)
             WHERE mode IN ('ShareLock', 'AccessExclusiveLock') AND d.oid::text = $1",
            &[database],
        )
    }

    pub fn identifier(name: &str) -> String {
        quoted(name)
    }

    /// A string literal, whatever standard_conforming_strings is where a person runs it.
    pub fn literal(text: &str) -> String {
        let text = text.replace('\'', "''");
        if text.contains('\\') { format!("E'{}'", text.replace('\\', "\\\\")) } else { format!("'{text}'") }
    }

    /// Sends something, unless there was a signal. The answer comes row by row: libpq would buffer an endless one.
    fn sent(&self, send: impl FnOnce() -> std::result::Result<(), libpq::errors::Error>) -> Result {
        go_on()?;
        send().and_then(|()| self.connection.set_single_row_mode()).map_err(|error| self.lost(&error))
    }

    fn last_result(&self) -> Result<Rows> {
        let (mut last, mut rows, mut failure) = (None, Vec::new(), None);
        let (mut count, mut size) = (0, 0);
        let (began, mut say_at, mut pause) = (Instant::now(), waiting::SAY_AFTER, Duration::from_micros(100));
        loop {
            self.wait(began, &mut say_at, &mut pause)?;
            let Some(result) = self.connection.result() else { break };
            let status = result.status();
            count += usize::from(status != Status::SingleTuple);
            match status {
                Status::SingleTuple => {
                    let values: Vec<_> =
                        (0..result.nfields()).map(|column| result.value(0, column)).collect();
                    size += values.iter().map(|value| value.map_or(0, <[u8]>::len) + 24).sum::<usize>() + 48;
                    if size <= MOST_BYTES {
                        // PostgreSQL has no zero bytes, which would end a statement.
                        let text = |value| String::from_utf8_lossy(value).replace('\0', " ");
                        rows.push(values.into_iter().map(|value| value.map(text)).collect());
                    }
                }
                Status::TuplesOk | Status::CommandOk | Status::EmptyQuery => {
                    last = Some(mem::take(&mut rows))
                }
                Status::CopyOut | Status::CopyIn | Status::CopyBoth => count += MOST_RESULTS,
                _ => failure = failure.or(Some(self.failure(&result))),
            }
            // A hostile server may send without end.
            if count > MOST_RESULTS || size > MOST_BYTES {
                return Err(self.lost("its answer is unexpected, or too large"));
            }
        }
        failure.map_or_else(|| last.map(Rows).ok_or_else(|| self.lost("no answer")), Err)
    }

    /// Waits until a result is there, for as long as a statement may take.
    fn wait(&self, began: Instant, say_at: &mut Duration, pause: &mut Duration) -> Result {
        // Consume what has arrived before sleeping, so that it does not pile up.
        while self.connection.is_busy() {
            self.connection.consume_input().map_err(|error| self.lost(&error))?;
            // libpq keeps notifications, and a hostile server may send them without end.
            while self.connection.notifies().is_some() {}
            if !self.connection.is_busy() {
                break;
            }
            let waited = began.elapsed();
            let is_late = self.patience.get().is_some_and(|patience| waited > patience)
                || self.end.get().is_some_and(|end| Instant::now() > end);
            let late = Error::late(&self.server, waited.as_secs_f64());
            // The server would complete the statement, even a change, if it were not told.
            go_on()
                .and(if is_late { Err(late) } else { Ok(()) })
                .inspect_err(|_| connecting::cancel(&self.connection))?;
            if waited > *say_at {
                *say_at = waited * 3;
                self.say_why();
            }
            thread::sleep(*pause);
            *pause = (*pause * 2).min(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Reports what this session waits for, as seen by a second one.
    fn say_why(&self) {
        if self.parameters.is_empty() {
            return;
        }
        let mut parameters = self.parameters.clone();
        // Somebody may have locked a catalog of this database.
        parameters.insert("dbname".into(), "postgres".into());
        parameters.insert("connect_timeout".into(), "3".into());
        let why = Session::connect(&self.server, parameters).and_then(|mut other| {
            other.parameters.clear();
            other.set_patience(Some(waiting::SAY_AFTER));
            other.cause(self.pid())
        });
        let why = match why {
            Ok(Some(why)) => format!("waits for {why}"),
            Ok(None) => "is at work".into(),
            Err(error) => format!("does not show why: {error}"),
        };
        note(format!("waiting for {}: pid {} there {why}", self.server, self.pid()));
    }

    fn failure(&self, result: &PQResult) -> Error {
        let field = |field| result.error_field(field).ok().flatten().map(cut);
        let message = field(ErrorField::MessagePrimary)
            .or_else(|| result.error_message().ok().flatten())
            .unwrap_or_else(|| "no message".into());
        match field(ErrorField::Sqlstate) {
            // A hostile server may send any text.
            Some(code) if code.len() == 5 && code.chars().all(char::is_alphanumeric) => Error::Sql {
                server: self.server.clone(),
                code,
                message,
                detail: field(ErrorField::MessageDetail),
                hint: field(ErrorField::MessageHint),
            },
            _ => self.lost(&message),
        }
    }

    fn lost(&self, why: impl ToString) -> Error {
        let why = cut(&why.to_string());
        Error::Unreachable { server: self.server.clone(), code: String::new(), why }
    }
}

pub struct Rows(Vec<Vec<Option<String>>>);

impl Rows {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn row(&self, number: usize) -> Row<'_> {
        Row(self.0.get(number).map_or(&[], Vec::as_slice))
    }

    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.0.iter().map(|row| Row(row))
    }
}

pub struct Row<'a>(&'a [Option<String>]);

impl Row<'_> {
    /// A column as text; none if it is null.
    pub fn text(&self, column: usize) -> Option<String> {
        self.0.get(column)?.clone()
    }

    /// A column as text; empty if it is null.
    pub fn string(&self, column: usize) -> String {
        self.text(column).unwrap_or_default()
    }

    /// A name or an address, of which only a hostile server sends more than the beginning.
    pub fn name(&self, column: usize) -> String {
        self.string(column).chars().take(300).collect()
    }

    pub fn is_true(&self, column: usize) -> bool {
        self.text(column).as_deref() == Some("t")
    }

    /// A column as a number; none if it is null, or not such a number.
    pub fn number<T: std::str::FromStr>(&self, column: usize) -> Option<T> {
        self.text(column)?.parse().ok()
    }
}
