//! Copies the schema: pg_dump on the source, piped into psql on the target, in one transaction.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::checks;
use super::names::set_comment;
use super::plan::Plan;
use super::rights;
use super::sides::Place;
use crate::connection::session::Session;
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::output::note;
use crate::terminal::signals;
use crate::terminal::text::{plain, said};

/// Refuses an old pg_dump, with which a name with a line break, or a hostile server, could run commands in psql.
pub fn check_programs() -> Result {
    let help = Command::new("pg_dump").arg("--help").output();
    if help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--restrict-key")) {
        return Ok(());
    }
    refused(
        "the PATH has no pg_dump that is new enough",
        "Install the client programs of PostgreSQL 13.22, 14.19, 15.14, 16.10, 17.6 or later.",
    )
}

/// A program of PostgreSQL that connects as our sessions do, in a process group of its own, so that we handle Ctrl-C.
fn program(name: &str, place: &Place<'_>) -> Command {
    let (connection, variables) = place.server.for_program();
    let application = place.name.replace('\\', "\\\\").replace('\'', "\\'");
    let mut command = Command::new(name);
    command.args(["-w", "-d", &format!("{connection} application_name='{application}'")]).envs(variables);
    command.env("PGCONNECT_TIMEOUT", "10").env_remove("PGCLIENTENCODING").process_group(0);
    command
}

/// Running programs, with the threads that show their output. They are killed on drop.
#[derive(Default)]
struct Programs(Vec<(Child, JoinHandle<()>)>);

impl Programs {
    /// Starts a program. Its messages are marked, so that a name in them cannot forge one of ours.
    fn start(&mut self, command: &mut Command) -> io::Result<()> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let mut said = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let shown = thread::spawn(move || {
            // It may quote texts of any length.
            let lines = BufReader::new(said.by_ref().take(1 << 16)).split(b'\n').map_while(io::Result::ok);
            for line in lines {
                let line = plain(&String::from_utf8_lossy(&line));
                pieces(&line).iter().for_each(|piece| note(format!("> {piece}")));
            }
            let _ = io::copy(&mut said, &mut io::sink());
        });
        self.0.push((child, shown));
        Ok(())
    }
}

/// A line in pieces that fit into one of a terminal, even if that shows characters wider: the rest could pass for ours.
fn pieces(line: &str) -> Vec<String> {
    textwrap::wrap(line, if line.is_ascii() { 76 } else { 38 }).into_iter().map(Into::into).collect()
}

impl Drop for Programs {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.0.drain(..).for_each(|(_, shown)| drop(shown.join()));
    }
}

/// Restores only the definitions, and rolls back, to find out what the target lacks.
pub fn rehearse(plan: &Plan<'_>) -> Result {
    let (session, schema) = (plan.source.primary().session()?, &plan.names.schema);
    session.run("BEGIN")?;
    let snapshot = rights::look_at(plan, schema, &session)?;
    rights::check_rows(plan)?;
    note("rehearsing the definitions on the target");
    let of_schema = format!("--schema={}", Session::identifier(schema));
    let options = [&of_schema[..], &snapshot, "--schema-only", "--lock-wait-timeout=2s"];
    let rights = rights::given(schema);
    if let Some(said) = dump_into(plan, &options, &rights, true)? {
        return rights::compare(&session.value(&rights, &[])?, said.lines().last().unwrap_or_default());
    }
    refused(
        "the definitions were not restored: see above",
        "No move was begun. If a table was just dropped, try again. Use pg_dump and psql of the target's release. Create what the \
         target lacks. GRANT CREATE ON DATABASE to the owner, who must be a member of all who own something in the schema, \
         and must have given all rights.",
    )
}

/// Copies the schema with its rows. A comment marks the copy, so that no other schema is ever dropped. Returns a session
/// whose locks keep the rows as they are: a client may know a table by its OID, and its owner may rewrite it.
pub fn copy(plan: &Plan<'_>) -> Result<Session> {
    let (locks, moving) = (plan.source.primary().session()?, &plan.names.moving);
    locks.run("BEGIN; SET LOCAL lock_timeout = '10s'")?;
    // Foreign keys of tables elsewhere are still checked.
    lock_tables(&locks, moving, "SHARE ROW EXCLUSIVE", "ASC")?;
    let snapshot = rights::look_at(plan, moving, &locks)?;
    checks::ties(&locks, moving)?;
    note("copying the rows");
    let marked = set_comment(moving, &plan.names.mark);
    // Its owner may wait for our lock, and pg_dump behind the owner.
    let of_schema = format!("--schema={}", Session::identifier(moving));
    let said = dump_into(plan, &[&of_schema, &snapshot, "--lock-wait-timeout=10s"], &marked, false)?;
    // A hostile source may have had psql read the end as rows.
    if said.is_none() || plan.comment_on(plan.target.primary(), moving)?.as_ref() != Some(&plan.names.mark) {
        return refused("the rows were not copied: see above", "Correct that, and try again.");
    }
    // An extension may have been committed meanwhile.
    rights::refuse_names_of_others(plan, &locks, moving)?;
    Ok(locks)
}

/// Locks the tables that exist, in the session's transaction and in the order of their OIDs, `ASC` or `DESC`.
pub fn lock_tables(session: &Session, schema: &str, mode: &str, order: &str) -> Result {
    let locks = session.query(
        &format!(
            "SELECT format('SET LOCAL ROLE %I; LOCK TABLE ONLY %I.%I IN {mode} MODE; SET LOCAL ROLE NONE',
                           pg_get_userbyid(relowner), nspname, relname)
             FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
             WHERE nspname = $1 AND relkind IN ('r', 'p') ORDER BY c.oid {order}"
        ),
        &[schema],
    )?;
    // As its owner, who may have replaced a table by a view of a catalog: only superusers may lock that.
    locks.iter().try_for_each(|lock| session.run(&lock.string(0)).map(drop))
}

/// Pipes pg_dump and then this statement into psql, and returns what psql has printed if both succeeded. A trial rolls back.
/// Clients of the target would queue behind a wait for a lock, so it gives up, a trial at once: pg_dump resets lock_timeout.
fn dump_into(plan: &Plan<'_>, options: &[&str], last: &str, is_trial: bool) -> Result<Option<String>> {
    let fail = |error: io::Error| Error::refused(format!("the copy failed: {error}"), "Try again.");
    let (reader, writer) = io::pipe().map_err(fail)?;
    let mut programs = Programs::default();
    let mut psql = program("psql", &plan.as_owner[1]);
    let (printed, printer) = io::pipe().map_err(fail)?;
    // psql begins the transaction: the dump first forbids it to run commands that a hostile server slips in.
    psql.args(["-XAtq", "-v", "AUTOCOMMIT=off", "-v", "ON_ERROR_STOP=1"]).stdin(reader).stdout(printer);
    let printed = thread::spawn(move || io::read_to_string(printed.take(1 << 26)).unwrap_or_default());
    programs.start(&mut psql).map_err(fail)?;
    let mut pg_dump = program("pg_dump", &plan.as_owner[0]);
    // The schema's name is in UTF-8 as well.
    pg_dump.arg("--encoding=UTF8").args(options).stdin(Stdio::null());
    programs.start(pg_dump.stdout(writer.try_clone().map_err(fail)?)).map_err(fail)?;
    drop((psql, pg_dump));
    let mut writer = Some(writer);
    let (mut writing, mut shown, mut stuck) = (None, Instant::now(), 0);
    loop {
        if let Some(status) = programs.0[0].0.try_wait().map_err(fail)? {
            let printed = printed.join().unwrap_or_default();
            let is_whole =
                writing.is_some_and(|it: JoinHandle<io::Result<()>>| matches!(it.join(), Ok(Ok(()))));
            return Ok(Some(printed).filter(|_| status.success() && is_whole));
        }
        if writer.is_some()
            && let Some(status) = programs.0[1].0.try_wait().map_err(fail)?
        {
            // No COMMIT unless the dump is complete.
            if !status.success() {
                return Ok(None);
            }
            // The pipe may be full for as long as psql is at work.
            let ending = ending(last, is_trial);
            writing = writer.take().map(|mut pipe| thread::spawn(move || pipe.write_all(ending.as_bytes())));
        }
        if shown.elapsed() > Duration::from_secs(5) {
            let waits = show_progress(plan).unwrap_or_else(|error| {
                note(format!("{error}"));
                true
            });
            shown = Instant::now();
            stuck = if waits { stuck + 1 } else { 0 };
            if stuck > if is_trial { 0 } else { 3 } {
                let what = "what was to be restored has to wait for a lock or for a server: see above";
                return refused(what, "Try again when that transaction has ended, and both servers answer.");
            }
        }
        signals::pause(Duration::from_millis(20))?;
    }
}

/// What psql reads after the dump, with a statement. It runs commands there, and how it reads literals is up to the servers,
/// of which one may be hostile: so the statement is in hexadecimal, and psql does not read the result.
fn ending(statement: &str, is_trial: bool) -> String {
    let hex: String = statement.bytes().map(|byte| format!("{byte:02x}")).collect();
    let end = if is_trial { "ROLLBACK" } else { "COMMIT" };
    let sql = format!("SELECT convert_from(decode('{hex}', 'hex'), 'UTF8') \\gexec");
    format!("SET standard_conforming_strings = on;\nSET search_path = pg_catalog, pg_temp;\n{sql}\n{end};\n")
}

/// Shows what the copy does, or waits for. Returns whether it waits for a lock.
fn show_progress(plan: &Plan<'_>) -> Result<bool> {
    let mut waits = false;
    for place in [plan.source.primary(), plan.target.primary()] {
        let session = place.session()?;
        let at_work = "SELECT pid, left(query, 60), wait_event_type = 'Lock' FROM pg_stat_activity
                       WHERE application_name = $1 AND usename = $2 AND state = 'active'
                         AND pid <> pg_backend_pid()";
        for row in session.query(at_work, &[&place.name, &plan.owner])?.iter().take(10) {
            let cause = session.cause(row.number(0).unwrap_or(0))?;
            let cause = cause.map(|cause| format!(", waits for {cause}")).unwrap_or_default();
            note(format!("{}: {}{cause}", place.role, said(&row.string(1))));
            waits |= row.is_true(2);
        }
    }
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::{ending, pieces};

    /// Promise: psql reads nothing of a name, which could end a literal and begin a command.
    #[test]
    fn names_reach_no_program_as_they_are() {
        let text = ending(r"COMMENT ON SCHEMA s IS '\'; \! touch x -- ü'", false);
        assert_eq!(text.matches(['\\', '!', 'ü']).collect::<String>(), r"\");
        assert!(text.contains(r" \gexec"), "{text}");
    }

    /// Promise: what a tenant's function says never begins a line of the terminal.
    #[test]
    fn what_programs_say_is_shown_in_pieces() {
        let dots = ".".repeat(100);
        assert_eq!(pieces(&dots), [&dots[..76], &dots[76..]]);
        let said = format!("ERROR: no {dots}é");
        assert_eq!(pieces(&said), ["ERROR: no", &dots[..38], &dots[..38], &format!("{}é", &dots[..24])]);
    }
}
