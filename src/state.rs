//! The state of this server, for the view `idgen_status` and for the setting `idgen.state`, which also works on
//! standbys and without the extension. Problems are found in one place, and have codes for programs.

use idgen_core::error;
use idgen_core::host::Host;
use idgen_core::mark::{Clocks, MarkState, Progress, renewal};
use idgen_core::settings::{QUEUE_MS, Settings};
use idgen_core::shared::{Guarded, Slotted};
use idgen_ids::epoch::Timestamptz;
use idgen_ids::id::MAX_TICK;
use idgen_ids::js::JsShard;
use idgen_ids::shard_set::ShardSet;
use idgen_ids::{Epoch, Shard, Tick};
use serde_json::{Value, json};

use crate::error::{Class, Error, Reason, Row, Table, Warning, sqlstate};
use crate::host::{Postgres, check_minting, host};
use crate::origin_slots;
use crate::pg::backend;
use crate::pg::origin::{self, MARK_ORIGIN};
use crate::pg::setting::{self, Shown};
use crate::pg::{shmem, standbys};
use crate::settings;

/// A Julian year, 365.25 days, in milliseconds.
const YEAR_MS: f64 = 31_557_600_000.0;

/// How many years before the end the warnings begin: enough time to plan new keys.
const WARN_YEARS: f64 = 5.0;

/// How long standbys may take to acknowledge a mark before there is a warning, in milliseconds.
const AWAITED_MS: u64 = 1000;

/// The state of this server.
pub struct State {
    /// The epoch; none if its configured value was not accepted.
    pub epoch: Option<Epoch>,
    /// The clock; none if it is before the epoch.
    pub now: Option<Tick>,
    /// The stored mark; none before the first id.
    pub mark: Option<Progress>,
    /// What shared memory holds, or why there is none for this session.
    pub memory: Result<Used, Error>,
    /// The years until the end of the range.
    pub years_left: Option<f64>,
    /// The worst problem.
    pub warning: Option<Warning>,
    /// Whether a call for an id of a shard that this server may mint for would be served now.
    pub mints: bool,
}

/// What shared memory holds.
pub struct Used {
    /// Whether the server has preloaded the library.
    preloaded: bool,
    /// Whether the stored mark has been removed.
    removed: bool,
    /// The state of renewals.
    pub renewals: MarkState,
    /// The end of the ticks that may be issued.
    pub limit: Tick,
    /// The furthest tick of all shards; 0 if there is none.
    pub furthest: Tick,
    /// How many shards have been used, in both layouts.
    pub shards: i32,
    /// The shards for which the server may mint: a session may have read another value of the setting.
    allowed: ShardSet,
    /// The shards that are closed, in either layout.
    pub closed: ShardSet,
    /// Ids handed to sessions, in both layouts.
    ids: u64,
    /// Calls that were refused.
    refused: u64,
    /// When the two began to count.
    since: Timestamptz,
}

impl Used {
    /// What it holds now, after an observation of the clocks.
    pub fn read(host: Postgres, clocks: Option<Clocks>) -> Used {
        let mut used = Used {
            preloaded: shmem::preloaded(),
            removed: host.segment.mark_removed(),
            renewals: host.with_mark(|mark| {
                clocks.inspect(|clocks| mark.observe(*clocks));
                *mark
            }),
            limit: host.limit(),
            furthest: 0,
            shards: 0,
            allowed: host.segment.list(),
            closed: ShardSet::NONE,
            ids: 0,
            refused: Reason::ALL.into_iter().map(|(reason, ..)| host.segment.refused(reason)).sum(),
            since: host.segment.counted_since(),
        };
        used.add(host, Shard::all());
        used.add(host, JsShard::all());
        used
    }

    fn add<S: Slotted>(&mut self, host: Postgres, shards: impl Iterator<Item = S>) {
        for shard in shards {
            let slot = shard.slot(&host.segment.shared).copy();
            let last = slot.last().map(|last| last.tick());
            self.ids += slot.counters.ids;
            self.shards += i32::from(last.is_some());
            self.furthest = self.furthest.max(last.unwrap_or(0));
            if slot.closed {
                self.closed = self.closed.with(shard.into());
            }
        }
    }
}

impl State {
    /// The state now. Raises PostgreSQL's errors.
    pub fn read() -> State {
        let host = host();
        let settings = settings::current().ok();
        let clocks = host.as_ref().ok().and_then(|host| renewal::clocks(host).ok());
        let memory = host.clone().map(|host| Used::read(host, clocks));
        let now = clocks.map(|clocks| clocks.now);
        let stored = origin::load_mark();
        let mark = stored.filter(|mark| *mark != Progress::FIRST);
        let years_left = now.map(|now| MAX_TICK.saturating_sub(now) as f64 / YEAR_MS);
        let stops = stops(&memory, stored, mark);
        let (mut warning, mut mints) = (stops, false);
        if let (Ok(host), Ok(used), Some(clocks), Some(settings)) = (host, &memory, clocks, settings) {
            let behind = |tick: Tick| tick > clocks.now + settings.max_ahead_ms + QUEUE_MS;
            let floor = used.renewals.floor();
            let unrenewed = unrenewed(host, &used.renewals, clocks, &settings);
            let has_limit = used.limit > clocks.now.max(floor);
            mints = warning.is_none()
                && !host.in_recovery()
                && !behind(floor)
                && (has_limit || unrenewed.is_none());
            let late = behind(floor.max(used.furthest)).then_some(Warning::ClockBehind);
            warning = warning.or(unrenewed).or(late);
        }
        let warning = warning.or_else(|| harmless(years_left, settings.as_ref()));
        State { epoch: settings::epoch().ok(), now, mark, memory, years_left, warning, mints }
    }

    /// What can be known without catalogs: a role without any right can lock one, by CREATE RULE.
    fn without_catalogs() -> State {
        let memory = host().map(|host| Used::read(host, None));
        let mark = origin::load_mark().filter(|mark| *mark != Progress::FIRST);
        let epoch = settings::epoch().ok();
        State { epoch, now: None, mark, memory, years_left: None, warning: None, mints: false }
    }

    /// The mark, if it counts from the epoch.
    pub fn mark_of_epoch(&self) -> Option<(Epoch, Tick)> {
        let (epoch, mark) = (self.epoch?, self.mark?);
        mark.is_of(epoch).then(|| (epoch, mark.mark()))
    }
}

/// The first problem that takes the server down or, after those, that stops all minting. A server that has loaded the
/// mark goes by the ids that it has minted since.
fn stops(memory: &Result<Used, Error>, stored: Option<Progress>, mark: Option<Progress>) -> Option<Warning> {
    let used = memory.as_ref().ok();
    let begun = stored.is_some() || backend::in_recovery() || used.is_none_or(|used| used.preloaded);
    let unused = mark.filter(|_| !used.is_some_and(|used| used.renewals.loaded()));
    let removed = || used.is_some_and(|used| used.removed).then(|| Error::MarkRemoved.into());
    let no_slot = origin_slots::check(origin_slots::origins()).err().map(Warning::from);
    let refused = || check_minting(unused).err().or_else(|| (!begun).then(|| Error::FirstMark.into()));
    no_slot.or_else(removed).or_else(refused)
}

/// The problem that keeps the mark from being renewed: a jump of the clock, too few standbys, or standbys that do not
/// acknowledge the last mark written.
fn unrenewed(host: Postgres, state: &MarkState, clocks: Clocks, settings: &Settings) -> Option<Warning> {
    if let Some(by_ms) = state.jump(clocks, settings.max_clock_jump_ms) {
        return Some(error::Error::ClockJumped { by_ms }.into());
    }
    // A standby's own list of standbys counts once it is promoted, and the runbooks empty it first.
    let counts = host.standbys_must_acknowledge() && !host.in_recovery();
    if let Some((streaming, needed)) = standbys::too_few().filter(|_| counts) {
        return Some(Warning::TooFewStandbys { streaming, needed });
    }
    let awaited = renewal::awaited_ms(&host, state).filter(|ms| *ms > AWAITED_MS);
    awaited.map(|_| Warning::NotAcknowledged)
}

/// The first problem that does not stop minting yet. Raises PostgreSQL's errors.
fn harmless(years_left: Option<f64>, settings: Option<&Settings>) -> Option<Warning> {
    if origin::mark_has_name() {
        return Some(Warning::MarkHasName { origin: MARK_ORIGIN });
    }
    if let Err(warning) = settings::check_files() {
        return Some(warning);
    }
    let years = years_left.filter(|years| *years < WARN_YEARS);
    let ends = years.map(|years| Warning::RangeEnds { years });
    ends.or_else(|| settings?.max_clock_jump_ms.is_none().then_some(Warning::AnyJump))
}

/// Defines the setting `idgen.state`, for programs that must not trust what lives in a database.
pub fn define() {
    setting::define_shown::<State>(
        c"idgen.state",
        c"Shows the state of this server as a JSON object.",
        c"It cannot be set.",
    );
}

impl Shown for State {
    fn shown() -> String {
        let reads_catalogs = backend::reads_catalogs();
        // PostgreSQL 15 calls this for every reader of pg_settings, and discards the result.
        if reads_catalogs && !backend::reads_settings() {
            return String::new();
        }
        let (known, (code, message)) = if reads_catalogs {
            match backend::attempt(|| json(&State::read())) {
                Ok(value) => return ascii(&value.to_string()),
                Err(error) => (backend::attempt(|| json(&State::without_catalogs())).ok(), error),
            }
        } else {
            let Row { class: Class(code, _), message, .. } = Error::NotInDatabase.row();
            (None, (code, message))
        };
        let mut value =
            known.unwrap_or_else(|| json!({ "version": env!("CARGO_PKG_VERSION"), "mints": false }));
        value["error"] = json!({ "sqlstate": sqlstate(code), "message": message });
        ascii(&value.to_string())
    }
}

/// JSON without characters that the encoding of the database may not have. All others are within a string.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

fn json(state: &State) -> Value {
    let unix_ms = |at: Timestamptz| (at - Epoch::from_unix_ms(0).expect("an epoch").timestamp()) / 1000;
    let used = state.memory.as_ref().ok();
    let [max_ahead_ms, reserve_ahead_ms, max_clock_jump_ms] = settings::limits_ms();
    let allowed = used.map_or_else(settings::list, |used| used.allowed);
    let shown = |list: ShardSet| if list == ShardSet::ALL { String::new() } else { list.to_string() };
    let failed = state.memory.as_ref().err().cloned().or_else(|| settings::epoch().err());
    let warning = state.warning.as_ref().map(|warning| warning.row());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        // A text, because many programs read numbers as floating point.
        "system_identifier": backend::system_identifier().to_string(),
        "preloaded": used.is_some_and(|used| used.preloaded),
        "epoch_ms": state.epoch.map(Epoch::unix_ms),
        "mark_ms": state.mark_of_epoch().map(|(epoch, mark)| epoch.unix_ms_of(mark)),
        "mark_of_epoch": state.mark.map(|_| state.mark_of_epoch().is_some()),
        "allowed_shards": Some(allowed).filter(|list| *list != ShardSet::NONE).map(shown),
        "closed_shards": used.map(|used| used.closed.to_string()),
        "max_ahead_ms": max_ahead_ms,
        "reserve_ahead_ms": reserve_ahead_ms,
        "max_clock_jump_ms": max_clock_jump_ms,
        "ids": used.map(|used| used.ids),
        "refused": used.map(|used| used.refused),
        "since_ms": used.map(|used| unix_ms(used.since)),
        "mints": state.mints,
        "warning": warning.map(|row| json!({
            "code": row.known.map(|known| known.code),
            "severity": row.known.map(|known| known.severity),
            "message": row.message,
            "hint": row.hint,
        })),
        "error": failed.map(|error| {
            let Row { class: Class(code, _), message, .. } = error.row();
            json!({ "sqlstate": sqlstate(code), "message": message })
        }),
    })
}
