//! Waiting: for what the program wants to see, and why a session waits, for whoever watches the program.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::connection::session::Session;
use crate::terminal::error::Result;
use crate::terminal::{output, signals};

/// After so long, a person wants to know why nothing happens.
pub const SAY_AFTER: Duration = Duration::from_secs(3);

/// Asks again and again until there is an answer, and says after a while what it waits for. None if there is no answer
/// within the limit.
pub fn until<T>(
    limit: Duration,
    what: &str,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let began = Instant::now();
    let mut has_said = false;
    loop {
        let waited = began.elapsed();
        match ask()? {
            None if waited < limit => {}
            answer => return Ok(answer),
        }
        if waited > SAY_AFTER && !has_said {
            has_said = true;
            output::note(format!("waiting for {what}"));
        }
        signals::pause(Duration::from_millis(100))?;
    }
}

thread_local! {
    /// The session that finds out must not say why it waits itself.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// Says what a session of a server waits for, as another session sees it.
pub fn say_why(server: &str, pid: u32, parameters: &HashMap<String, String>) {
    if ASKS.replace(true) {
        return;
    }
    let mut parameters = parameters.clone();
    parameters.insert("connect_timeout".into(), "3".into());
    parameters.insert("application_name".into(), "idgenctl looks".into());
    let why = Session::connect(server, parameters).and_then(|other| {
        other.set_patience(Some(Duration::from_secs(3)));
        cause(&other, pid)
    });
    output::note(match why {
        Ok(Some(why)) => format!("waiting for {server}: pid {pid} there waits for {why}"),
        Ok(None) => format!("waiting for {server}: pid {pid} there is at work"),
        Err(error) => format!("waiting for {server}, which does not say why: {error}"),
    });
    ASKS.set(false);
}

/// What a session waits for; nothing if it is at work, or gone.
pub fn cause(session: &Session, pid: u32) -> Result<Option<String>> {
    // Before PostgreSQL 17, no extension has a name among the events.
    let rows = session.query(
        "SELECT coalesce(
             (SELECT string_agg(CASE b WHEN 0 THEN 'a prepared transaction' ELSE
                                format('pid %s (%s, %s)', b, coalesce(nullif(o.application_name, ''), o.backend_type),
                                       coalesce(o.state, 'no state')) END, ', ')
              FROM unnest(pg_blocking_pids(a.pid)) AS b LEFT JOIN pg_stat_activity AS o ON o.pid = b),
             CASE WHEN wait_event = 'SyncRep' THEN format('synchronous standbys (synchronous_standby_names = %L)',
                                                          current_setting('synchronous_standby_names'))
                  WHEN wait_event = 'Extension' THEN 'idgen or another extension'
                  WHEN wait_event_type <> 'Client' THEN format('%s (%s)', wait_event, wait_event_type) END)
         FROM pg_stat_activity AS a WHERE pid = $1::integer",
        &[&pid.to_string()],
    )?;
    Ok(rows.iter().next().and_then(|row| row.text(0)))
}
