//! `idgenctl carry`: takes the mark of a cluster to another, and proves that no id of before can come again.
//!
//! `snowflake_advance` raises the mark of the new server, which is durable then, but only the shard that it is called for
//! goes on from there at once. Another shard begins at the clock, or at the safe horizon if that is later. So the proof is
//! `snowflake_safe_horizon()`: once it has reached the mark that is carried, no shard mints below. It gets there as soon as
//! the clock does or, by a restart, at once, because a server begins at its mark. No shard has to be advanced by itself.
//!
//! The horizon does not bound `snowflake_next_id_js`, so each of its shards is taken past the mark by an id. That is not
//! needed if the server has not minted since its start, because it begins at its mark in this layout too.

mod file;
mod tables;

use std::path::Path;
use std::time::Duration;

use idgen_ids::id::{SEQUENCE_BITS, SHARD_BITS};
use idgen_ids::{Epoch, Tick, js};
use serde_json::json;

use crate::cli::{Carry, Cli};
use crate::error::{Error, Result};
use crate::extension::{Installations, installations};
use crate::fleet::{Fleet, Member};
use crate::output::{self, note, plain, print, table};
use crate::server::Server;
use crate::session::{self, Session};
use crate::status::epoch_text;

use file::{Saved, time_of};
use tables::Reading;

/// For how long the program waits for the clock of the new server, in milliseconds. The mark of a server that was minting
/// until now is some seconds ahead of its clock.
const WAIT_MS: u64 = 60_000;

/// The exit code if databases were not looked at.
const FOUND_SOMETHING: u8 = 3;

/// Takes the mark of a cluster to another.
///
/// # Errors
/// That it is refused, or cannot be proved yet.
pub fn run(cli: &Cli, arguments: &Carry) -> Result<u8> {
    let mut fleet = Fleet::load(&cli.servers)?;
    let from = arguments.from.as_deref().map(|name| place(&mut fleet, name)).transpose()?;
    let to = arguments.to.as_deref().map(|name| place(&mut fleet, name)).transpose()?;
    if let Some(path) = &arguments.save {
        return save(cli, server(&fleet, from, None, "--from")?, path);
    }
    let saved = arguments.load.as_deref().map(Saved::read).transpose()?;
    let new = server(&fleet, to, from, "--to")?;
    let old = from.map(|number| Cluster::open(&fleet.servers[number])).transpose()?;
    let new = Cluster::open(new)?;
    if let Some(old) = &old
        && old.member.identity == new.member.identity
    {
        return Err(Error::Usage(format!("{} and {} are the same server", old.name(), new.name())));
    }
    carry(cli, old.as_ref(), saved, &new)
}

/// The number of a server in the fleet, which gets it if it is given by a connection string.
fn place(fleet: &mut Fleet, name: &str) -> Result<usize> {
    match fleet.add(name)?[..] {
        [number] => Ok(number),
        _ => Err(Error::Usage("a connection string with several hosts; name the primary alone".into())),
    }
}

/// The server that was named, or the only primary other than that one.
fn server<'a>(
    fleet: &'a Fleet,
    named: Option<usize>,
    other: Option<usize>,
    option: &str,
) -> Result<&'a Server> {
    if let Some(number) = named {
        return Ok(&fleet.servers[number]);
    }
    let candidates: Vec<&Server> = fleet
        .servers
        .iter()
        .enumerate()
        .filter_map(|(number, server)| (Some(number) != other).then_some(server))
        .collect();
    if let [only] = candidates[..] {
        return Ok(only);
    }
    let mut primaries = Vec::new();
    for candidate in candidates {
        if !Member::of(candidate)?.is_standby {
            primaries.push(candidate);
        }
    }
    match primaries[..] {
        [only] => Ok(only),
        _ => {
            let names: Vec<&str> = fleet.servers.iter().map(|server| server.name.as_str()).collect();
            Err(Error::Usage(format!(
                "name the server that is meant with {option}: one of {}",
                names.join(", ")
            )))
        }
    }
}

/// A primary, and the extension in its databases.
struct Cluster<'a> {
    member: Member<'a>,
    found: Installations,
    /// Where its functions can be called: which of the databases.
    at: usize,
}

/// What idgen says there.
struct State {
    epoch: Epoch,
    /// 0 before the first id.
    mark: Tick,
    now: Tick,
    /// Whether it has written a mark since it was started: before that, it has minted nothing.
    mints: bool,
    /// How far ids may be ahead of the clock, in milliseconds.
    max_ahead: u64,
}

impl<'a> Cluster<'a> {
    fn open(server: &'a Server) -> Result<Cluster<'a>> {
        let member = Member::of(server)?;
        if member.is_standby {
            return Err(Error::refused(
                format!("{} is a standby", server.name),
                "Nothing was changed. Name its primary.",
            ));
        }
        let found = installations(server, &member.session)?;
        let Some(at) = found.there.iter().position(|place| place.extension.others.is_empty()) else {
            // This says why not.
            if let Some(place) = found.there.first() {
                place.extension.trust(&server.name, &place.database)?;
            }
            return Err(Error::refused(
                format!("no database of {} that can be looked at has the extension idgen", server.name),
                "Nothing was changed. Run idgenctl enable first, if the files of idgen are there.",
            ));
        };
        Ok(Cluster { member, found, at })
    }

    fn name(&self) -> &str {
        &self.member.server.name
    }

    /// SQL in which `{}` stood for the schema of idgen.
    fn of_schema(&self, sql: &str) -> String {
        sql.replace("{}", &Session::identifier(&self.found.there[self.at].extension.schema))
    }

    /// The value of a query.
    fn value(&self, query: &str, parameters: &[&str]) -> Result<String> {
        self.found.there[self.at].session.value(&self.of_schema(query), parameters)
    }

    fn state(&self) -> Result<State> {
        // A session loads the library by the first call, and has its settings then.
        let rows = self.found.there[self.at].session.run(&self.of_schema(
            "SELECT FROM {}.idgen_status;
             SELECT (extract(epoch FROM s.epoch) * 1000)::bigint, coalesce(mark, 0), mark IS NOT NULL AND mark_at IS NULL,
                    now_tick, renewals > 0,
                    (SELECT setting::bigint FROM pg_settings WHERE name = 'idgen.max_ahead')
             FROM {}.idgen_status AS s",
        ));
        let rows = rows.map_err(|error| match error.code() {
            "55000" => Error::refused(
                error.to_string(),
                "Run idgenctl enable, restart the server if it says so, and run the same command again.",
            ),
            _ => error,
        })?;
        let row = rows.row(0);
        let refused = |what: &str, hint: &str| Err(Error::refused(format!("{}: {what}", self.name()), hint));
        let Some(epoch) = row.number(0).and_then(|ms| Epoch::from_unix_ms(ms).ok()) else {
            return refused("its setting idgen.epoch is invalid", "Nothing was changed. Correct it first.");
        };
        if row.is_true(2) {
            return refused(
                "its mark counts from another epoch than its setting idgen.epoch",
                "Nothing was changed. Put the setting right, or run idgenctl accept-epoch.",
            );
        }
        let Some(now) = row.number(3) else {
            return refused("its clock is before its epoch", "Nothing was changed. Set the clock right.");
        };
        let (mark, max_ahead) = (row.number(1).unwrap_or(0), row.number(5).unwrap_or(0));
        Ok(State { epoch, mark, now, mints: row.is_true(4), max_ahead })
    }

    /// Says that clients are connected, whose ids could be missed.
    fn mention_clients(&self) -> Result {
        let own = self.found.there.iter().map(|place| &place.session).chain([&self.member.session]);
        let own: Vec<String> = own.map(|session| session.pid().to_string()).collect();
        let clients = self.member.session.value(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> ALL ($1::integer[])",
            &[&format!("{{{}}}", own.join(","))],
        )?;
        if clients != "0" {
            note(format!(
                "warning: {} has other sessions: {clients}. An id that it mints from now on can be missed. Run this again \
                 when its clients have gone",
                self.name()
            ));
        }
        Ok(())
    }
}

/// Writes the mark of a server into a file.
fn save(cli: &Cli, server: &Server, path: &Path) -> Result<u8> {
    let old = Cluster::open(server)?;
    old.mention_clients()?;
    let state = old.state()?;
    let saved = Saved {
        server: old.name().into(),
        system_identifier: old.member.system.clone(),
        epoch: epoch_text(state.epoch.unix_ms()),
        mark: state.mark,
        mark_at: time_of(state.epoch, state.mark),
        saved_at: time_of(state.epoch, state.now),
    };
    saved.write(path)?;
    if cli.json {
        print(output::json(&json!({ "saved": path.display().to_string(), "mark_at": saved.mark_at })))?;
    } else {
        print(plain(&format!(
            "saved in {}: the mark of {}, {}",
            path.display(),
            saved.server,
            saved.mark_at
        )))?;
    }
    note("Stop that server before its clients mint again, and run idgenctl carry --load on the new one");
    Ok(0)
}

/// The tick that no id of before has reached, and who says so.
struct Goal {
    tick: Tick,
    why: String,
}

fn carry(cli: &Cli, old: Option<&Cluster>, saved: Option<Saved>, new: &Cluster) -> Result<u8> {
    let source = match old {
        Some(old) => {
            old.mention_clients()?;
            let state = old.state()?;
            Some((old.name().to_owned(), state.epoch, state.mark))
        }
        None => saved.map(|saved| Ok((saved.server.clone(), saved.epoch()?, saved.mark))).transpose()?,
    };
    let state = new.state()?;
    let epoch = state.epoch;
    if let Some((name, other, _)) = &source
        && *other != epoch
    {
        return Err(Error::refused(
            format!(
                "idgen.epoch is {} on {}, and {} on {name}",
                epoch_text(epoch.unix_ms()),
                new.name(),
                epoch_text(other.unix_ms())
            ),
            "Nothing was changed. Give the new server the epoch of the old one, restart it, and run the same command again.",
        ));
    }

    let reading = tables::read(&new.found)?;
    let of_tables = reading.greatest.as_ref().map(|greatest| Goal {
        tick: greatest.tick + 1,
        why: format!("the greatest id in {}", greatest.column),
    });
    let of_source =
        source.as_ref().map(|(name, _, mark)| Goal { tick: *mark, why: format!("the mark of {name}") });
    let goal = of_source.into_iter().chain(of_tables).max_by_key(|goal| goal.tick);
    let goal = goal.unwrap_or(Goal { tick: 0, why: "no id".into() });
    // Read again: the tables may have taken long.
    let state = new.state()?;
    let passed = pass(cli, new, &state, &goal, &reading)?;

    if let (Some(old), Some((name, _, before))) = (old, &source)
        && old.state()?.mark != *before
    {
        return Err(Error::Broken {
            what: format!("{name} has minted meanwhile, and these ids were not carried"),
            hint: "Stop its clients, and run the same command again.".into(),
        });
    }
    report(cli, new, source.as_ref().map(|(name, ..)| name.as_str()), &reading, passed)
}

/// Takes the new server past the goal, and returns whether its mark had to be raised.
fn pass(cli: &Cli, new: &Cluster, state: &State, goal: &Goal, reading: &Reading) -> Result<bool> {
    let raise = state.mark < goal.tick;
    let begins_there = !state.mints && !raise;
    let js = reading.has_js && goal.tick > 0 && !begins_there;
    let at = time_of(state.epoch, goal.tick);
    let ahead = goal.tick.saturating_sub(state.now);
    if raise && ahead > state.max_ahead + WAIT_MS {
        return Err(Error::refused(
            format!("{} is of {at}, {} ahead of the clock of {}", goal.why, span(ahead), new.name()),
            "Nothing was changed. If nothing can be of that time, idgen.epoch is not that of the server that minted it, or the \
             id is none of idgen. Otherwise set the clock of the new server right, or wait; or raise idgen.max_ahead (1 h at \
             most) for as long as the clock is behind. Then run the same command again.",
        ));
    }
    if raise {
        note(format!("The mark of {} will be raised to {at}: {}", new.name(), goal.why));
    }
    if js {
        note(format!(
            "Each of the shards 0 to 255 that {} may mint for will mint an id of snowflake_next_id_js, which lies after all",
            new.name()
        ));
    }
    if raise || js {
        output::consent(cli, "Go on?")?;
        session::notice_signals();
    }
    if raise {
        wait_for(new, goal.tick.saturating_sub(state.max_ahead), "its clock allows that mark")?;
        advance(new, goal.tick)?;
        note(format!("done: the mark of {} was raised", new.name()));
    }
    prove(new, goal.tick, js).map_err(|error| {
        let done = if raise { "The mark has been raised already. " } else { "" };
        let hint = error.hint().unwrap_or("See to that.");
        let again = "Let no client mint before the same command has been run again and has succeeded.";
        Error::Broken { what: error.to_string(), hint: format!("{done}{hint} {again}") }
    })?;
    Ok(raise)
}

/// Raises the mark above a tick.
fn advance(new: &Cluster, tick: Tick) -> Result {
    let bits = SHARD_BITS + SEQUENCE_BITS;
    let past = (tick - 1) << bits | ((1 << bits) - 1);
    new.value("SELECT {}.snowflake_advance(0, $1)", &[&past.to_string()]).map(drop)
}

/// Proves that the server mints nothing below a tick, which its mark has reached.
fn prove(new: &Cluster, tick: Tick, js: bool) -> Result {
    let horizon = || -> Result<Tick> {
        let horizon: u64 = number(&new.value("SELECT {}.snowflake_safe_horizon()", &[])?, new)?;
        Ok(horizon >> (SHARD_BITS + SEQUENCE_BITS))
    };
    let restart = |now: Tick| {
        Error::refused(
            format!(
                "the clock of {} is {} behind, so shards may still begin before the mark",
                new.name(),
                span(tick.saturating_sub(now))
            ),
            format!("Restart {}, so that all shards begin at the mark, or correct its clock.", new.name()),
        )
    };
    if tick > 0 && horizon()? < tick {
        let now = new.state()?.now;
        if tick > now + WAIT_MS {
            return Err(restart(now));
        }
        wait_for(new, tick, "its clock has passed the mark")?;
        // The horizon goes no further than marks that were published. One that broke off may only be written.
        advance(new, tick)?;
        if horizon()? < tick {
            return Err(Error::refused(
                format!("{} has an open transaction that minted before the mark was raised", new.name()),
                "End it: pg_stat_activity shows it.",
            ));
        }
    }
    let second = tick.next_multiple_of(js::UNIT_MS);
    // A call of snowflake_next_id_js that is in no default begins with the second of the clock.
    if !js && (tick..second).contains(&new.state()?.now) {
        wait_for(new, second, "its clock has passed the mark by a second")?;
    }
    if js {
        let now = new.state()?.now;
        if second > now + WAIT_MS {
            return Err(restart(now));
        }
        wait_for(new, second, "its clock has passed the mark by a second")?;
        let least = new.value(
            "SELECT min({}.snowflake_next_id_js(shard)) FROM generate_series(0, 255) AS shard
             WHERE {}.idgen_allows(shard)",
            &[],
        )?;
        if !least.is_empty() {
            let id: u64 = number(&least, new)?;
            if (id >> (js::SHARD_BITS + js::SEQUENCE_BITS)) * js::UNIT_MS < tick {
                return Err(restart(now));
            }
        }
    }
    if new.state()?.mark < tick {
        return Err(Error::refused(
            format!("the mark of {} is not above all ids", new.name()),
            "Somebody has set it back: see whether the server was restored or replaced meanwhile.",
        ));
    }
    Ok(())
}

/// Waits until the clock of the server has reached a tick.
fn wait_for(new: &Cluster, tick: Tick, until: &str) -> Result {
    let mut said = false;
    loop {
        let now = new.state()?.now;
        if now >= tick {
            return Ok(());
        }
        if !said {
            said = true;
            note(format!("waiting until {until}: {}", span(tick - now)));
        }
        session::pause(Duration::from_millis((tick - now).min(200)))?;
    }
}

fn number(text: &str, new: &Cluster) -> Result<u64> {
    text.parse().map_err(|_| Error::Broken {
        what: format!("{} answered \"{text}\" where a number was expected", new.name()),
        hint: "Check that this is idgen.".into(),
    })
}

fn report(cli: &Cli, new: &Cluster, source: Option<&str>, reading: &Reading, raised: bool) -> Result<u8> {
    let state = new.state()?;
    let time = |tick| time_of(state.epoch, tick);
    let not_read = || reading.databases_not_read.iter().map(|(name, why)| (format!("database {name}"), why));
    let not_read = not_read().chain(reading.columns_not_read.iter().map(|(name, why)| (name.clone(), why)));
    let not_read: Vec<_> = not_read.collect();
    let greatest = reading.greatest.as_ref();
    if cli.json {
        let json = json!({
            "carried": true,
            "server": new.name(),
            "from": source,
            "mark_at": time(state.mark),
            "raised": raised,
            "greatest_at": greatest.map(|greatest| time(greatest.tick)),
            "greatest_in": greatest.map(|greatest| &greatest.column),
            "columns": reading.columns,
            "ids": reading.ids,
            "not_read": not_read.iter().map(|(what, why)| json!({ "what": what, "why": why })).collect::<Vec<_>>(),
        });
        print(output::json(&json))?;
    } else {
        if !not_read.is_empty() {
            let mut shown = table(&["not read", "why"]);
            for (what, why) in &not_read {
                shown.add_row([plain(what), plain(why)]);
            }
            print(shown.to_string())?;
        }
        if let Some(greatest) = greatest {
            let text = format!(
                "the greatest id that was read is of {}, in {}",
                time(greatest.tick),
                greatest.column
            );
            print(plain(&text))?;
        }
        let all = match source {
            Some(source) => format!("all ids of {source}, and the {} ids", reading.ids),
            None => format!("the {} ids", reading.ids),
        };
        let how = if raised { "was raised" } else { "was there before" };
        print(plain(&format!(
            "carried: {} mints only after {all} in {} columns; its mark, {}, {how}",
            new.name(),
            reading.columns,
            time(state.mark)
        )))?;
    }
    if !not_read.is_empty() {
        note("As the owner of what was not read, check that the greatest id in it is below the mark");
    }
    if source.is_none() {
        note(
            "Ids that are in no row are unknown here. If this server was restored from a backup, carry also the marks of the servers \
             from which shards were moved to it since that backup",
        );
    }
    Ok(if reading.databases_not_read.is_empty() { 0 } else { FOUND_SOMETHING })
}

/// A time in words.
fn span(ms: u64) -> String {
    output::span(ms as f64 / 1000.0)
}
