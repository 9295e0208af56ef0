//! A session of a server, through libpq.

use std::cell::Cell;
use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use libpq::result::ErrorField;
use libpq::{Connection, Format, PQResult, Status};

use crate::connection::{connecting, waiting};
use crate::terminal::error::{Error, Result};
use crate::terminal::output::note;
use crate::terminal::signals::go_on;

/// For so long a session waits for an answer, unless it was told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// More results than the statements of this program have.
const MOST_RESULTS: usize = 100;

/// A session of a server.
pub struct Session {
    connection: Connection,
    server: String,
    patience: Cell<Option<Duration>>,
    /// Those of the connection, for a second one that finds out what this one waits for. That has none.
    parameters: HashMap<String, String>,
}

impl Session {
    /// Connects with these parameters of libpq.
    pub fn connect(server: &str, parameters: HashMap<String, String>) -> Result<Session> {
        let connection = connecting::connect(server, &parameters)?;
        Ok(Session { connection, server: server.into(), patience: Cell::new(Some(PATIENCE)), parameters })
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

    /// Whether it can take a statement, outside a transaction.
    pub fn is_idle(&self) -> bool {
        self.connection.transaction_status() == libpq::transaction::Status::Idle
    }

    /// Sets for how long a statement may take: 30 s at first; none means for ever. When that is over, nobody knows
    /// whether the statement had an effect, and the session is of no more use.
    pub fn set_patience(&self, patience: Option<Duration>) {
        self.patience.set(patience);
    }

    /// Runs one statement with parameters `$1` and so on.
    pub fn query(&self, sql: &str, parameters: &[&str]) -> Result<Rows> {
        if parameters.iter().any(|text| text.contains('\0')) || sql.contains('\0') {
            return Err(Error::Usage("a text contains a zero byte".into()));
        }
        let texts: Vec<Vec<u8>> = parameters.iter().map(|text| [text.as_bytes(), b"\0"].concat()).collect();
        let values: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_slice())).collect();
        self.connection.send_query_params(sql, &[], &values, &[], Format::Text).map_err(|e| self.lost(&e))?;
        self.last_result()
    }

    /// Runs statements without parameters, in one transaction unless they say otherwise. Gives the rows of the last.
    pub fn run(&self, sql: &str) -> Result<Rows> {
        self.connection.send_query(sql).map_err(|error| self.lost(&error))?;
        self.last_result()
    }

    /// The one value of a statement, as text; an empty text if it is null.
    pub fn value(&self, sql: &str, parameters: &[&str]) -> Result<String> {
        let rows = self.query(sql, parameters)?;
        match rows.len() {
            1 => Ok(rows.row(0).text(0).unwrap_or_default()),
            n => Err(Error::Broken {
                what: format!("{}: {n} rows where one was expected", self.server),
                hint: String::new(),
            }),
        }
    }

    /// Reads the rows that a COPY ... TO STDOUT sends, one line at a time, without the line break.
    pub fn copy_out(&self, sql: &str, mut each: impl FnMut(&[u8])) -> Result {
        self.connection.send_query(sql).map_err(|error| self.lost(&error))?;
        self.wait(&mut Wait::begin())?;
        match self.connection.result() {
            Some(result) if result.status() == Status::CopyOut => {}
            Some(result) => {
                let rows = self.checked(result);
                let _ = self.last_result();
                return rows.map(drop);
            }
            None => return Err(self.lost("no answer")),
        }
        let mut waits = Wait::begin();
        loop {
            match self.connection.copy_data(true) {
                Ok(line) => {
                    each(line.strip_suffix(b"\n").unwrap_or(&line));
                    waits = Wait::begin();
                    go_on()?;
                }
                Err(libpq::errors::Error::Backend(text)) if text == "COPY is done" => break,
                Err(libpq::errors::Error::Backend(text)) if text == "COPY still in progress" => {
                    self.step(&mut waits)?;
                    self.connection.consume_input().map_err(|error| self.lost(&error))?;
                }
                Err(error) => return Err(self.lost(&error)),
            }
        }
        self.last_result().map(drop)
    }

    /// A name as SQL writes it, in quotes.
    pub fn identifier(name: &str) -> String {
        format!("\"{}\"", name.replace('"', "\"\""))
    }

    /// A text as SQL writes it, in quotes. Sessions have standard_conforming_strings on.
    pub fn literal(text: &str) -> String {
        format!("'{}'", text.replace('\'', "''"))
    }

    fn last_result(&self) -> Result<Rows> {
        let (mut last, mut failure) = (None, None);
        let (mut waits, mut count) = (Wait::begin(), 0);
        loop {
            self.wait(&mut waits)?;
            let Some(result) = self.connection.result() else { break };
            // There would be no end of them.
            count += 1;
            if count > MOST_RESULTS
                || matches!(result.status(), Status::CopyOut | Status::CopyIn | Status::CopyBoth)
            {
                return Err(self.lost("it answers what it was not asked"));
            }
            match self.checked(result) {
                Ok(rows) => last = Some(rows),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match (failure, last) {
            (Some(error), _) => Err(error),
            (None, Some(rows)) => Ok(rows),
            (None, None) => Err(self.lost("no answer")),
        }
    }

    /// Waits until a result is there. A cancel and the end of patience end the wait.
    fn wait(&self, waits: &mut Wait) -> Result {
        loop {
            self.connection.consume_input().map_err(|error| self.lost(&error))?;
            if !self.connection.is_busy() {
                return Ok(());
            }
            self.step(waits)?;
        }
    }

    /// A moment of waiting.
    fn step(&self, waits: &mut Wait) -> Result {
        go_on()?;
        let waited = waits.began.elapsed();
        if let Some(patience) = self.patience.get()
            && waited > patience
        {
            return Err(Error::NoAnswer { server: self.server.clone(), seconds: patience.as_secs() });
        }
        if waited > waits.say_at {
            waits.say_at = waited * 3;
            self.say_why();
        }
        thread::sleep(waits.pause);
        waits.pause = (waits.pause * 2).min(Duration::from_millis(20));
        Ok(())
    }

    /// Says what this session waits for, as another one sees it.
    fn say_why(&self) {
        if self.parameters.is_empty() {
            return;
        }
        let mut parameters = self.parameters.clone();
        parameters.insert("connect_timeout".into(), "3".into());
        let why = Session::connect(&self.server, parameters).and_then(|mut other| {
            other.parameters.clear();
            other.set_patience(Some(waiting::SAY_AFTER));
            waiting::cause(&other, self.pid())
        });
        let why = match why {
            Ok(Some(why)) => format!("waits for {why}"),
            Ok(None) => "is at work".into(),
            Err(error) => format!("does not show why: {error}"),
        };
        note(format!("waiting for {}: pid {} there {why}", self.server, self.pid()));
    }

    fn checked(&self, result: PQResult) -> Result<Rows> {
        match result.status() {
            Status::TuplesOk | Status::CommandOk | Status::EmptyQuery => Ok(Rows(result)),
            _ => {
                // The texts are copied at once: they belong to the result.
                let field = |field| result.error_field(field).ok().flatten().map(str::to_owned);
                let message = field(ErrorField::MessagePrimary)
                    .or_else(|| result.error_message().ok().flatten())
                    .unwrap_or_else(|| "no message".into());
                match field(ErrorField::Sqlstate) {
                    Some(code) => Err(Error::Sql {
                        server: self.server.clone(),
                        code,
                        message,
                        detail: field(ErrorField::MessageDetail),
                        hint: field(ErrorField::MessageHint),
                    }),
                    None => Err(self.lost(&message)),
                }
            }
        }
    }

    fn lost(&self, why: impl ToString) -> Error {
        Error::Unreachable { server: self.server.clone(), code: String::new(), why: why.to_string() }
    }
}

/// A wait for an answer.
struct Wait {
    began: Instant,
    say_at: Duration,
    pause: Duration,
}

impl Wait {
    fn begin() -> Wait {
        Wait { began: Instant::now(), say_at: waiting::SAY_AFTER, pause: Duration::from_micros(100) }
    }
}

/// The rows of a statement.
pub struct Rows(PQResult);

impl Rows {
    pub fn len(&self) -> usize {
        self.0.ntuples()
    }

    pub fn row(&self, number: usize) -> Row<'_> {
        Row { rows: self, number }
    }

    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.len()).map(|number| self.row(number))
    }
}

pub struct Row<'a> {
    rows: &'a Rows,
    number: usize,
}

impl Row<'_> {
    /// The text in a column; none if it is null.
    pub fn text(&self, column: usize) -> Option<String> {
        self.rows.0.value(self.number, column).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The text in a column; empty if it is null.
    pub fn string(&self, column: usize) -> String {
        self.text(column).unwrap_or_default()
    }

    /// Whether a column is true.
    pub fn is_true(&self, column: usize) -> bool {
        self.text(column).as_deref() == Some("t")
    }

    /// The number in a column; none if it is null or not such a number.
    pub fn number<T: std::str::FromStr>(&self, column: usize) -> Option<T> {
        self.text(column)?.parse().ok()
    }
}
