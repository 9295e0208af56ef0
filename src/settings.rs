//! All settings, with their ranges and the reasons for their defaults.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};

use idgen_core::settings::Settings;
use idgen_ids::id::{IDS_PER_TICK, SHARDS};
use idgen_ids::shard_set::ShardSet;
use idgen_ids::{Epoch, Shard};
use pgrx::guc::{GucContext, GucFlags, GucSetting};

use crate::error::{Error, Warning};
use crate::pg::backend;
use crate::pg::local::Local;
use crate::pg::setting::{self, Changed, Complaint, IntSetting, TextSetting};
use crate::pg::shmem;
use crate::session;
#[cfg(feature = "pg_test")]
use crate::testing::mutation::{self, Mutation};

const EPOCH: &CStr = c"idgen.epoch";
const ALLOWED_SHARDS: &CStr = c"idgen.allowed_shards";

/// A fixed date in the recent past, so that the ids of a new installation are small and last until 2059.
const DEFAULT_EPOCH: &CStr = c"2025-01-01T00:00:00Z";

static EPOCH_TEXT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(DEFAULT_EPOCH));

/// Empty, which means all shards: a single server needs no list. With Citus it means none, see [`allowed_by`].
static ALLOWED_SHARDS_TEXT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// The integer settings.
static INTEGERS: [&Local<IntSetting>; 6] =
    [&SHARD, &MAX_AHEAD, &MAX_WAIT, &MAX_LEASE, &RESERVE_AHEAD, &MAX_CLOCK_JUMP];

/// Unset: with a wrong guess, rows of two shards would get the same number.
static SHARD: Local<IntSetting> = Local::new(IntSetting::new(
    c"idgen.shard",
    -1,
    -1..=SHARDS as i32 - 1,
    GucFlags::empty(),
    c"Sets the shard for which snowflake_next_id() mints ids when called without an argument.",
    c"-1 means unset. Can be set for a database, a role or a session.",
));

/// One second: absorbs the steps that an ordinary time daemon makes, and bursts of a million ids, while
/// `created_at` stays accurate to the second.
static MAX_AHEAD: Local<IntSetting> = Local::new(
    IntSetting::new(
        c"idgen.max_ahead",
        1000,
        0..=HOUR_MS,
        GucFlags::UNIT_MS,
        c"Sets how far ids may run ahead of the system clock.",
        c"With 0, a call waits for the next millisecond once the current one is used up.",
    )
    .of_server::<ServerChanges>(),
);

/// Five seconds: longer than `max_ahead`, so that calls can wait for a full shard, and short enough for a client to
/// learn that the clock was set back.
static MAX_WAIT: Local<IntSetting> = Local::new(IntSetting::new(
    c"idgen.max_wait",
    5000,
    0..=HOUR_MS,
    GucFlags::UNIT_MS,
    c"Sets the maximum time that a call waits for the clock or the high-water mark before it fails.",
    c"With 0, calls never wait.",
));

/// 64: a lock is then taken only for every 64th call, and 16 backends still fit into the 1024 ids of a millisecond.
static MAX_LEASE: Local<IntSetting> = Local::new(
    IntSetting::new(
        c"idgen.max_lease",
        64,
        1..=IDS_PER_TICK as i32,
        GucFlags::empty(),
        c"Sets the maximum number of ids that a backend takes from a shard at once.",
        c"With 1, the ids of a shard are in strict order across all backends.",
    )
    .on_change::<DropsLease>(),
);

/// One second: two small WAL records per second under load, and only a second of ids is skipped after a crash.
///
/// At most three seconds. An incarnation of the server begins at the mark that the previous one left, up to this far
/// ahead of the ids, or [`idgen_core::mark::MOST_LATE_REACH_MS`] after a late mark. If waiting for that took longer
/// than the default of `idgen.max_wait`, even for ids that count in seconds, every call would fail for a while after
/// each start.
static RESERVE_AHEAD: Local<IntSetting> = Local::new(
    IntSetting::new(
        c"idgen.reserve_ahead",
        1000,
        10..=3000,
        GucFlags::UNIT_MS,
        c"Sets how far ahead of the ids the durable high-water mark is written.",
        c"A lower value writes more WAL. With a higher value, ids begin later after a restart with the clock \
           set back.",
    )
    .of_server::<ServerChanges>(),
);

/// One hour: time daemons step the clock by less, and a wrong year is more.
static MAX_CLOCK_JUMP: Local<IntSetting> = Local::new(
    IntSetting::new(
        c"idgen.max_clock_jump",
        HOUR_MS,
        -1..=i32::MAX,
        GucFlags::UNIT_MS,
        c"Sets the size of a forward jump of the system clock that stops minting.",
        c"A mark written while the clock is years ahead could not be taken back. -1 disables the check.",
    )
    .of_server::<ServerChanges>(),
);

const HOUR_MS: i32 = 3_600_000;

/// The setting of the server that had a value when this session loaded the library, and the source of the value.
/// PostgreSQL may have replaced it by the default: a value that a client gives when it connects hides that of the
/// configuration files, and is not accepted in the end.
static GIVEN_WHEN_LOADED: Local<Cell<Option<(&'static str, &'static str)>>> = Local::new(Cell::new(None));

// Backends inherit the values parsed by the postmaster at fork.
static EPOCH_UNIX_MS: Local<Cell<i64>> = Local::new(Cell::new(NO_EPOCH));
static ALLOWED: Local<RefCell<ShardSet>> = Local::new(RefCell::new(ShardSet::ALL));
static BAD_ALLOWED_SHARDS: Local<Cell<bool>> = Local::new(Cell::new(false));
static CITUS: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Stands for a configured epoch that was not accepted: every clock is before it, so that the path to an id needs
/// no additional check.
const NO_EPOCH: i64 = i64::MAX;

struct EpochSetting;

impl TextSetting for EpochSetting {
    fn check(text: &str) -> Result<(), Complaint> {
        match Epoch::parse(text) {
            Ok(_) => Ok(()),
            Err(bad) => Err(Complaint {
                detail: bad.to_string(),
                hint: "Write a time such as \"2025-01-01T00:00:00Z\", or whole milliseconds since 1970 \
                       such as 1735689600000.",
            }),
        }
    }

    fn assign(text: &str) {
        EPOCH_UNIX_MS.set(Epoch::parse(text).map_or(NO_EPOCH, Epoch::unix_ms));
        server_changed();
    }
}

/// The shards for which a value of `idgen.allowed_shards` lets this server mint. Citus runs a default on any node,
/// and the nodes do not know each other's ids; so with Citus, no list means no shards.
fn allowed_by(text: &str) -> Result<ShardSet, String> {
    if CITUS.get() && text.trim().is_empty() { Ok(ShardSet::NONE) } else { ShardSet::parse(text) }
}

struct AllowedShardsSetting;

impl TextSetting for AllowedShardsSetting {
    fn check(text: &str) -> Result<(), Complaint> {
        match allowed_by(text) {
            Ok(_) => Ok(()),
            Err(detail) => Err(Complaint {
                detail,
                hint: "Write shards and ranges separated by commas, such as \"0-4095,5000\".",
            }),
        }
    }

    fn assign(text: &str) {
        if let Ok(shards) = allowed_by(text) {
            *ALLOWED.borrow_mut() = shards;
            BAD_ALLOWED_SHARDS.set(false);
            // Sessions whose statements go on read the configuration late.
            if backend::in_postmaster()
                && let Some(segment) = shmem::at_hand()
            {
                segment.allow(&shards);
            }
        }
        server_changed();
    }
}

/// After a change of some settings, an existing lease might break a promise.
struct DropsLease;

impl Changed for DropsLease {
    fn changed() {
        session::drop_lease();
    }
}

/// A setting of the server has changed: an existing lease might break a promise, and without a preload the session must
/// be checked again.
struct ServerChanges;

impl Changed for ServerChanges {
    fn changed() {
        server_changed();
    }
}

fn server_changed() {
    session::drop_lease();
    shmem::leave();
}

/// Defines the settings. Called once in each process that loads the library itself, before the prefix is reserved.
pub fn define() {
    // PostgreSQL reads the configuration before it loads the library. If it then rejects a value, because the check
    // refuses it or because it comes from a database, a role or a session, it falls back to the default with only a
    // warning. No id may be minted or decoded with that default.
    let (epoch, allowed) = (setting::configured(EPOCH), setting::configured(ALLOWED_SHARDS));
    // Until its restart, the postmaster keeps an empty text for a line that was removed, if the setting has
    // not been defined.
    let epoch = epoch.filter(|text| backend::preloading() || !text.is_empty());
    CITUS.set(setting::preloads("citus"));
    if !backend::preloading() {
        GIVEN_WHEN_LOADED.set(given());
    }

    setting::define_text::<EpochSetting>(
        EPOCH,
        c"Sets the time from which ids count their milliseconds.",
        c"An RFC 3339 time or an integer number of milliseconds since 1970. Do not change it once ids are in use, \
          because existing ids would decode to wrong times.",
        &EPOCH_TEXT,
        // Defining a postmaster setting outside the postmaster is fatal. A session that loaded the library itself
        // cannot mint, but decodes with the value in the configuration file.
        if backend::preloading() { GucContext::Postmaster } else { GucContext::Sighup },
    );
    setting::define_text::<AllowedShardsSetting>(
        ALLOWED_SHARDS,
        c"Sets the shards for which this server may mint ids.",
        c"A comma-separated list of shards and ranges of shards. Empty allows all shards, or none if Citus is \
          preloaded.",
        &ALLOWED_SHARDS_TEXT,
        GucContext::Sighup,
    );
    for integer in INTEGERS {
        setting::define_int(integer);
    }

    if epoch.is_some_and(|text| Epoch::parse(&text).map(Epoch::unix_ms) != Ok(EPOCH_UNIX_MS.get())) {
        EPOCH_UNIX_MS.set(NO_EPOCH);
    }
    let taken = *ALLOWED.borrow();
    BAD_ALLOWED_SHARDS.set(allowed.is_some_and(|text| allowed_by(&text) != Ok(taken)));
}

/// A setting of the server that has a value other than by default, and the source of the value.
fn given() -> Option<(&'static str, &'static str)> {
    let integers = INTEGERS.iter().filter(|integer| integer.is_of_server()).map(|integer| integer.name);
    let mut names = [EPOCH, ALLOWED_SHARDS].into_iter().chain(integers);
    names.find_map(|name| Some((name.to_str().ok()?, setting::given(name)?)))
}

/// Checks that all settings of the server have their defaults in this session, as they must without a preload: sessions
/// could otherwise differ, and nothing has checked what is configured.
///
/// # Errors
/// 55000 if one has a value, or had one when this session loaded the library.
pub fn check_defaults() -> Result<(), Error> {
    match given().or(GIVEN_WHEN_LOADED.get()) {
        Some((setting, source)) => Err(Error::SettingNeedsPreload { setting, source }),
        None => Ok(()),
    }
}

/// The default of `idgen.epoch`.
pub fn default_epoch() -> Epoch {
    DEFAULT_EPOCH.to_str().ok().and_then(|text| Epoch::parse(text).ok()).expect("an epoch")
}

/// The epoch in milliseconds since 1970, or a time after every clock if there is none.
#[inline]
pub fn epoch_unix_ms() -> i64 {
    EPOCH_UNIX_MS.get()
}

/// The epoch.
///
/// # Errors
/// 55000 if the configured value was not accepted.
pub fn epoch() -> Result<Epoch, Error> {
    Epoch::from_unix_ms(EPOCH_UNIX_MS.get()).map_err(|_| Error::BadSetting("idgen.epoch"))
}

/// The shard of `snowflake_next_id()`.
///
/// # Errors
/// 55000 if none is set, or those of [`check_allowed_shards`]: they keep every shard from minting.
pub fn shard() -> Result<Shard, Error> {
    Shard::try_from(SHARD.get()).or_else(|_| {
        check_allowed_shards()?;
        Err(Error::ShardUnset { beside_citus: CITUS.get() })
    })
}

/// Checks that `idgen.allowed_shards` lets this server mint at all.
///
/// # Errors
/// 55000 if its configured value was not accepted, or if it is empty and Citus is preloaded.
pub fn check_allowed_shards() -> Result<(), Error> {
    if BAD_ALLOWED_SHARDS.get() {
        return Err(Error::BadSetting("idgen.allowed_shards"));
    }
    if *ALLOWED.borrow() == ShardSet::NONE { Err(Error::NoShardsBesideCitus) } else { Ok(()) }
}

/// The shards for which this server may mint, as this process has read the configuration.
pub fn list() -> ShardSet {
    if BAD_ALLOWED_SHARDS.get() { ShardSet::NONE } else { *ALLOWED.borrow() }
}

/// Whether this server may mint for a shard, as this process has read the configuration. What the server has read since
/// is looked at under the lock of the slot: [`idgen_core::host::Host::allows`].
#[inline]
pub fn allows(shard: Shard) -> bool {
    #[cfg(feature = "pg_test")]
    if mutation::is(Mutation::AnyShard) {
        return true;
    }
    !BAD_ALLOWED_SHARDS.get() && ALLOWED.borrow().contains(shard)
}

/// Checks that this server may mint for a shard.
fn check_allowed(shard: Shard) -> Result<(), Error> {
    if allows(shard) {
        return Ok(());
    }
    check_allowed_shards()?;
    Err(Error::ShardNotAllowed { shard: shard.into(), allowed: allowed_shards() })
}

/// The value of `idgen.allowed_shards`.
pub fn allowed_shards() -> String {
    ALLOWED_SHARDS_TEXT.get().unwrap_or_default().to_string_lossy().into_owned()
}

/// The values of `idgen.max_ahead`, `idgen.reserve_ahead` and `idgen.max_clock_jump`, in milliseconds.
pub fn limits_ms() -> [i32; 3] {
    [&MAX_AHEAD, &RESERVE_AHEAD, &MAX_CLOCK_JUMP].map(|setting| setting.get())
}

/// Checks that the values of idgen's settings in the configuration files are in effect.
///
/// # Errors
/// A warning if a value was refused, or waits for a restart.
pub fn check_files() -> Result<(), Warning> {
    setting::not_taken("idgen.").next().map_or(Ok(()), |name| Err(Warning::NotInEffect(name)))
}

/// The settings for a call that mints no ids, or for many shards.
///
/// # Errors
/// 55000 if the configured epoch was not accepted.
pub fn current() -> Result<Settings, Error> {
    let unsigned = |setting: &Local<IntSetting>| u64::from(setting.get().unsigned_abs());
    Ok(Settings {
        epoch: epoch()?,
        max_ahead_ms: unsigned(&MAX_AHEAD),
        max_wait_ms: unsigned(&MAX_WAIT),
        max_lease: unsigned(&MAX_LEASE),
        reserve_ahead_ms: unsigned(&RESERVE_AHEAD),
        max_clock_jump_ms: u64::try_from(MAX_CLOCK_JUMP.get()).ok(),
    })
}

/// The settings for a call that mints ids of a shard.
///
/// # Errors
/// 55000 if the configured epoch was not accepted, or if this server may not mint for the shard.
pub fn for_shard(shard: Shard) -> Result<Settings, Error> {
    check_allowed(shard)?;
    current()
}

/// As [`for_shard`], without a reason.
pub fn if_allowed(shard: Shard) -> Option<Settings> {
    if allows(shard) { current().ok() } else { None }
}
