//! Every error that the library raises: its SQLSTATE, message, DETAIL and HINT. No other module raises errors.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idgen_core::mint;
use idgen_ids::OutOfRange;
use idgen_ids::epoch::utc;
use idgen_ids::foreign::LAYOUTS;
use idgen_ids::id::SHARDS;
use idgen_ids::text::{BadText, excerpt};
use pgrx::PgSqlErrorCode as Code;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, function_name};

/// Why a call cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// An error of the core; one line for each.
    ///
    /// 22023: a batch of more ids than the shard can provide within the time that a call may wait.
    /// 40001: a batch that the shard could provide if it had not to provide others before.
    /// 40001: the shard is as far ahead of the system clock as it may be.
    /// 40001: the system clock is behind the ids of an earlier run of the server.
    /// 40001: it is behind those of this run.
    /// 40001: it is behind those of some shard.
    /// 40001: the system clock stands still.
    /// 55000: it jumped forward by more than `idgen.max_clock_jump`.
    /// 40001: the high-water mark did not become durable in time.
    /// 25006: the server is in recovery.
    /// 40001: there are prepared transactions.
    /// 22023: the id to advance past lies in the future.
    /// 2200H: the 2^40 ms since the epoch are used up.
    Mint(mint::Error),
    /// 22004: an argument that must be given is null.
    Null(&'static str),
    /// 22023: a part of an id is outside its range.
    Part(OutOfRange),
    /// 22023: a batch of fewer than 0 ids.
    NegativeCount(i32),
    /// 22008: a timestamp before the epoch, or after the last millisecond that can be minted.
    Timestamp,
    /// 22008: an epoch argument from which the id has no time that PostgreSQL can represent.
    EpochArgument,
    /// 55000: `snowflake_next_id()` without a shard in `idgen.shard`.
    ShardUnset,
    /// 55000: `idgen.allowed_shards` does not name this shard.
    ShardNotAllowed {
        /// The shard asked for.
        shard: i32,
        /// The setting.
        allowed: String,
    },
    /// 55000: Citus is preloaded, and `idgen.allowed_shards` is empty.
    NoShardsBesideCitus,
    /// 55000: the library is not in `shared_preload_libraries`.
    NotPreloaded,
    /// 55000: `snowflake_last_id()` before the session's first id.
    NoLastId,
    /// 55000: the configured value of a setting was not accepted when the library was loaded.
    BadSetting(&'static str),
    /// 55000: the configuration files contain a value for a setting that is not in effect.
    NotTaken(String),
    /// 55000: the system clock shows a time before the epoch.
    ClockBeforeEpoch {
        /// By how much, in milliseconds.
        by_ms: u64,
    },
    /// 25001: `snowflake_safe_horizon` in a transaction that uses a single snapshot.
    OneSnapshot,
    /// 53400: PostgreSQL has no free replication origin for the high-water mark.
    NoOrigin {
        /// The minimum value of the setting that bounds them.
        needed: usize,
    },
    /// 53400: the setting that bounds replication origins leaves no room for the high-water mark.
    NoRoom {
        /// The setting.
        setting: &'static str,
        /// Its value.
        room: usize,
        /// The minimum value.
        needed: usize,
    },
    /// 42501: this action requires a superuser.
    NotSuperuser(&'static str),
    /// 25006: this action is not possible on a standby.
    InRecovery(&'static str),
    /// 55000: the mark cannot be removed while the library is preloaded.
    StillPreloaded,
    /// 55000: the stored mark counts from another epoch.
    OtherEpoch,
    /// 22023: the epoch to accept is not the one in effect.
    NotTheEpoch,
    /// 55000: the stored mark is further ahead of the clock than ids may be.
    MarkInFuture {
        /// How far ahead of the clock, in milliseconds.
        by_ms: u64,
    },
    /// 55000: `idgen.max_clock_jump` allows any jump of the clock.
    AnyLeap,
    /// 22023: no layout has this name.
    NoLayout(String),
    /// 22023: an id with more bits than its layout.
    NotOfLayout {
        /// The id.
        id: i64,
        /// The layout's name.
        layout: &'static str,
        /// The layout's greatest id.
        max: u64,
    },
    /// 22P02: a text that is not a short code.
    BadShortcode(String, BadText),
    /// 22P02: a text that is not the sortable text of an id.
    BadText(String, BadText),
}

impl From<OutOfRange> for Error {
    fn from(part: OutOfRange) -> Error {
        Error::Part(part)
    }
}

impl From<mint::Error> for Error {
    fn from(why: mint::Error) -> Error {
        Error::Mint(why)
    }
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> ErrorReport {
        error.report()
    }
}

/// If a correct clock is further behind than this, somebody has to act, because it will not catch up soon enough.
const HOUR_MS: u64 = 3_600_000;

/// A sentence about when a clock that is this far behind lets minting resume.
fn goes_on(behind_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = (now + Duration::from_millis(behind_ms)).as_millis().next_multiple_of(1000);
    let at = i64::try_from(at).ok().and_then(utc).map_or_else(String::new, |at| format!(", at {at}"));
    format!("By this server's clock, minting resumes in {}{at}.", duration(behind_ms))
}

/// A span of time in readable form, rounded up to the second.
fn duration(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let shown = parts.iter().skip_while(|(n, _)| *n == 0).map(|(n, unit)| format!("{n} {unit}"));
    let text = shown.collect::<Vec<_>>().join(" ");
    if text.is_empty() { "0 s".into() } else { text }
}

/// The reasons for which calls are refused, as counted by the view `idgen_refusals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    ShardFull,
    BatchTooLarge,
    ClockBehind,
    ClockBehindMark,
    ClockLeapt,
    ClockBeforeEpoch,
    MarkNotDurable,
    OtherEpoch,
    NoOrigin,
    RangeUsedUp,
    SettingNotTaken,
    ShardNotAllowed,
    ShardUnset,
    Recovery,
    PreparedTransactions,
    OneSnapshot,
    NullArgument,
    BadArgument,
}

impl Reason {
    /// All reasons in the order of their numbers, with their names and the SQLSTATEs of their errors.
    ///
    /// 40001 is for what passes by itself: the call waited in vain, or a prepared transaction has yet to end. Clients
    /// know it as a request to try the whole transaction again. 55000 is for what somebody has to change first.
    pub const ALL: [(Reason, &str, Code); 18] = [
        (Reason::ShardFull, "shard_full", Code::ERRCODE_T_R_SERIALIZATION_FAILURE),
        (Reason::BatchTooLarge, "batch_too_large", Code::ERRCODE_INVALID_PARAMETER_VALUE),
        (Reason::ClockBehind, "clock_behind", Code::ERRCODE_T_R_SERIALIZATION_FAILURE),
        (Reason::ClockBehindMark, "clock_behind_mark", Code::ERRCODE_T_R_SERIALIZATION_FAILURE),
        (Reason::ClockLeapt, "clock_leapt", Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
        (Reason::ClockBeforeEpoch, "clock_before_epoch", Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
        (Reason::MarkNotDurable, "mark_not_durable", Code::ERRCODE_T_R_SERIALIZATION_FAILURE),
        (Reason::OtherEpoch, "other_epoch", Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
        (Reason::NoOrigin, "no_origin", Code::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
        (Reason::RangeUsedUp, "range_used_up", Code::ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
        (Reason::SettingNotTaken, "setting_not_taken", Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
        (Reason::ShardNotAllowed, "shard_not_allowed", Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
        (Reason::ShardUnset, "shard_unset", Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
        (Reason::Recovery, "recovery", Code::ERRCODE_READ_ONLY_SQL_TRANSACTION),
        (Reason::PreparedTransactions, "prepared_transactions", Code::ERRCODE_T_R_SERIALIZATION_FAILURE),
        (Reason::OneSnapshot, "one_snapshot", Code::ERRCODE_ACTIVE_SQL_TRANSACTION),
        (Reason::NullArgument, "null_argument", Code::ERRCODE_NULL_VALUE_NOT_ALLOWED),
        (Reason::BadArgument, "bad_argument", Code::ERRCODE_INVALID_PARAMETER_VALUE),
    ];

    fn code(self) -> Code {
        Reason::ALL[self as usize].2
    }
}

/// The five characters of an SQLSTATE, each of which PostgreSQL keeps in six bits.
pub fn sqlstate(code: Code) -> String {
    let bits = code as u32;
    (0..5).map(|place| char::from((bits >> (6 * place) & 0x3F) as u8 + b'0')).collect()
}

const _: () = {
    let mut number = 0;
    while number < Reason::ALL.len() {
        assert!(Reason::ALL[number].0 as usize == number);
        number += 1;
    }
};

/// Whether calls that are refused with an error are counted. The reason has the SQLSTATE of those that are.
enum Class {
    Counted(Reason),
    Uncounted(Code),
}

/// What the client gets. The message or the DETAIL names idgen or one of its functions, for readers of a log who do
/// not know that it is installed.
struct Text {
    class: Class,
    message: String,
    detail: String,
    hint: &'static str,
}

impl Error {
    fn text(&self) -> Text {
        use Class::{Counted, Uncounted};
        let (class, message, detail, hint) = match self {
            Error::Null(argument) => (
                Counted(Reason::NullArgument),
                format!("argument \"{argument}\" must not be null"),
                "idgen accepts no null for this argument.".into(),
                if *argument == "shard" {
                    "Pass a shard, or call snowflake_next_id() without an argument, which uses \"idgen.shard\"."
                } else {
                    "Pass a value that is not null."
                },
            ),
            Error::Part(OutOfRange { part, value, max }) => (
                Counted(Reason::BadArgument),
                format!("{part} \"{value}\" is out of range"),
                format!("The {part} of an id of idgen must be between 0 and {max}."),
                "See the bit layout in the documentation of idgen.",
            ),
            Error::NegativeCount(count) => (
                Counted(Reason::BadArgument),
                format!("count \"{count}\" is negative"),
                "snowflake_next_ids cannot mint fewer than 0 ids.".into(),
                "Ask for 0 or more ids.",
            ),
            Error::Timestamp => (
                Uncounted(Code::ERRCODE_DATETIME_FIELD_OVERFLOW),
                "timestamp is outside the range of ids".into(),
                "Ids cover the 2^40 milliseconds (34.8 years) that begin at \"idgen.epoch\".".into(),
                "The columns epoch and ends_at of the view idgen_status show the range.",
            ),
            Error::EpochArgument => (
                Uncounted(Code::ERRCODE_DATETIME_FIELD_OVERFLOW),
                "timestamp out of range".into(),
                "Counted from the epoch given to snowflake_time, the id has no time that PostgreSQL can \
                 represent."
                    .into(),
                "Pass the finite timestamp from which the milliseconds of the id are counted.",
            ),
            Error::ShardUnset => (
                Counted(Reason::ShardUnset),
                "no shard is set for this session".into(),
                "snowflake_next_id() without an argument mints for the shard in \"idgen.shard\".".into(),
                "Set \"idgen.shard\" with SET, ALTER DATABASE or ALTER ROLE, or call snowflake_next_id(shard).",
            ),
            Error::ShardNotAllowed { shard, allowed } => (
                Counted(Reason::ShardNotAllowed),
                format!("this server may not mint ids for shard \"{shard}\""),
                format!("\"idgen.allowed_shards\" is \"{allowed}\"."),
                "Connect to the server that holds the shard, or add the shard to the setting and reload \
                 the configuration once no other server mints for it.",
            ),
            Error::NoShardsBesideCitus => (
                Counted(Reason::ShardNotAllowed),
                "\"idgen.allowed_shards\" must be set on a server that preloads Citus".into(),
                "Citus runs defaults and functions on any of its nodes, and two nodes that mint for the same \
                 shard would produce the same ids. An empty list therefore allows no shard on this server."
                    .into(),
                "Give each node shards that no other node has, such as \"0-99\" and \"100-199\", or \"0-8191\" if \
                 there is only one node, and reload the configuration.",
            ),
            Error::NotPreloaded => (
                Uncounted(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                "\"idgen\" must be loaded via \"shared_preload_libraries\"".into(),
                "Minting and watching need shared memory, which idgen can allocate only when the server starts."
                    .into(),
                "Add idgen to shared_preload_libraries in postgresql.conf and restart the server.",
            ),
            Error::NoLastId => (
                Uncounted(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                "no id has been minted in this session yet".into(),
                "snowflake_last_id() returns the last id that this session itself has minted.".into(),
                "Call snowflake_next_id first.",
            ),
            Error::BadSetting(name) => (
                Counted(Reason::SettingNotTaken),
                format!("the value configured for \"{name}\" was not accepted"),
                "PostgreSQL logged a warning and fell back to the default, which idgen refuses to use.".into(),
                "Correct the setting in the configuration file and restart the server. It cannot be set for a \
                 database, a role or a session.",
            ),
            Error::NotTaken(name) => (
                Uncounted(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                format!("the configuration files contain a value for \"{name}\" that is not in effect"),
                "The server continues with the previous value. The view pg_file_settings shows the reason."
                        .into(),
                "Correct the value and reload the configuration, or restart the server if the setting requires it.",
            ),
            Error::ClockBeforeEpoch { by_ms } => (
                Counted(Reason::ClockBeforeEpoch),
                "the system clock is before \"idgen.epoch\"".into(),
                format!("The clock is {by_ms} ms before the epoch."),
                "Check the system clock and the setting.",
            ),
            Error::Mint(mint::Error::BatchTooLarge { count, most }) => (
                Counted(Reason::BatchTooLarge),
                format!("count \"{count}\" is more ids than one call can mint"),
                format!(
                    "This shard can provide at most {most} now, as far as \"idgen.max_ahead\" lets it run ahead of the \
                     clock and \"idgen.max_wait\" lets a call wait. No id was minted."
                ),
                "Ask for fewer ids at once, use several shards, or raise \"idgen.max_wait\".",
            ),
            Error::Mint(mint::Error::BatchesBefore { shard, count, ahead }) => (
                Counted(Reason::ShardFull),
                format!("shard \"{}\" has other batches to mint first", i32::from(*shard)),
                format!(
                    "They have still to take {ahead} ids, after which it is too late for {count} more within \
                     \"idgen.max_wait\". No id was minted."
                ),
                "Try again, ask for fewer ids at once, use several shards, or raise \"idgen.max_wait\".",
            ),
            Error::Mint(mint::Error::ShardFull { shard, max_ahead_ms, waited_ms }) => (
                Counted(Reason::ShardFull),
                format!("shard \"{}\" has run out of ids for now", i32::from(*shard)),
                format!(
                    "Its ids are as far ahead of the clock as \"idgen.max_ahead\" ({max_ahead_ms} ms) allows. A shard \
                     has 1024 ids per millisecond (4096 per second for snowflake_next_id_js). The call waited \
                     {waited_ms} ms."
                ),
                "Spread the load over more shards, ask for fewer ids, or raise \"idgen.max_wait\".",
            ),
            Error::Mint(mint::Error::ClockBehindMark { by_ms, max_ahead_ms, waited_ms }) => (
                Counted(Reason::ClockBehindMark),
                "the system clock is behind the ids of an earlier run of the server".into(),
                format!(
                    "The high-water mark stored when the server started is {by_ms} ms ahead of the clock; \
                     \"idgen.max_ahead\" allows {max_ahead_ms} ms. The call waited {waited_ms} ms. {}",
                    goes_on(by_ms.saturating_sub(*max_ahead_ms))
                ),
                if *by_ms > HOUR_MS {
                    "The clock is behind now, or it was ahead before the server stopped. Correct it if it is wrong. \
                     If it is right, the mark is wrong: see docs/operations.md. Restarting the server does not help."
                } else {
                    "If that is longer than a few seconds, the clock was ahead before the server stopped, or is \
                     behind now: check its synchronization. Restarting the server does not help."
                },
            ),
            Error::Mint(mint::Error::ClockBehind { shard, by_ms, max_ahead_ms, waited_ms }) => (
                Counted(Reason::ClockBehind),
                format!("the system clock is behind the ids of shard \"{}\"", i32::from(*shard)),
                format!(
                    "The next id is {by_ms} ms ahead of the clock; \"idgen.max_ahead\" allows {max_ahead_ms} ms. \
                     The call waited {waited_ms} ms. {}",
                    goes_on(by_ms.saturating_sub(*max_ahead_ms))
                ),
                "If the clock was set back, check its synchronization. Do not restart the server: after that, all \
                 shards would have to wait for the clock, not only those in use.",
            ),
            Error::Mint(mint::Error::ClockBehindIds { by_ms, max_ahead_ms, waited_ms }) => (
                Counted(Reason::ClockBehind),
                "the system clock is behind the ids already minted".into(),
                format!(
                    "The furthest of them is {by_ms} ms ahead of the clock; \"idgen.max_ahead\" allows {max_ahead_ms} \
                     ms. The call waited {waited_ms} ms. {}",
                    goes_on(by_ms.saturating_sub(*max_ahead_ms))
                ),
                "If the clock was set back, check its synchronization. Do not restart the server: after that, all \
                 shards would have to wait for the clock, not only those in use.",
            ),
            Error::Mint(mint::Error::ClockStands { waited_ms }) => (
                Counted(Reason::ClockBehind),
                "the system clock stands still".into(),
                format!(
                    "snowflake_advance has advanced the shard. Until the clock moves on, sessions may still mint ids \
                     that they took before. The call waited {waited_ms} ms."
                ),
                "Check the clock, then call the function again.",
            ),
            Error::Mint(mint::Error::ClockLeapt { by_ms }) => (
                Counted(Reason::ClockLeapt),
                "the system clock leapt forward".into(),
                format!(
                    "It moved {by_ms} ms ({}) further than the time since boot, which is more than \
                     \"idgen.max_clock_jump\" allows. No id was minted and nothing was written, because ids from \
                     the future cannot be taken back.",
                    duration(*by_ms)
                ),
                "If the clock is wrong now, correct it. Do not restart the server, because that would accept the jump. \
                 If the clock was wrong and is right now, call snowflake_accept_clock() as a superuser.",
            ),
            Error::Mint(mint::Error::MarkNotRenewed { waited_ms }) => (
                Counted(Reason::MarkNotDurable),
                "the high-water mark of ids could not be made durable in time".into(),
                format!(
                    "The call waited {waited_ms} ms (\"idgen.max_wait\") for the WAL to be flushed and, if \
                     \"synchronous_standby_names\" requires it, for synchronous standbys to acknowledge it."
                ),
                "Check the disk that holds the WAL and the view pg_stat_replication.",
            ),
            Error::Mint(mint::Error::Recovery) => (
                Counted(Reason::Recovery),
                "cannot mint ids during recovery".into(),
                "idgen mints on a primary only, because a server in recovery cannot write the high-water mark."
                    .into(),
                "Connect to the primary.",
            ),
            Error::OneSnapshot => (
                Counted(Reason::OneSnapshot),
                "snowflake_safe_horizon() must run in a READ COMMITTED transaction".into(),
                "This transaction reads from a single snapshot, which is older than the horizon would be, so \
                 it might miss rows below the horizon."
                    .into(),
                "Call it in a transaction of its own, before the one that reads.",
            ),
            Error::Mint(mint::Error::Prepared { count }) => (
                Counted(Reason::PreparedTransactions),
                "cannot determine the safe horizon while there are prepared transactions".into(),
                format!("This cluster has {count} of them, and idgen has no record of when they minted ids."),
                "Try again. If pg_prepared_xacts lists one that nobody will end, use COMMIT PREPARED or ROLLBACK \
                 PREPARED.",
            ),
            Error::NoOrigin { needed } => (
                Counted(Reason::NoOrigin),
                "no replication origin is free for the high-water mark of ids".into(),
                format!(
                    "idgen needs one of those that \"max_replication_slots\" (from PostgreSQL 18 on, \
                     \"max_active_replication_origins\") allows, and all of them are in use. The setting must be at \
                     least {needed}."
                ),
                "Raise the setting on every standby first, then on this server, and restart them: a standby without \
                 room for the mark goes down when it replays it.",
            ),
            Error::NoRoom { setting, room, needed } => (
                Uncounted(Code::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                format!("\"{setting}\" is \"{room}\" and must be at least \"{needed}\" for the mark of ids"),
                "The mark of idgen takes one replication origin, in addition to all others in use. Without room for \
                 all of them, no id is minted, recovery ends with FATAL when it comes to one too many, and a server \
                 that has saved them all does not start."
                    .into(),
                "Raise it on every standby first, then on the primary, and restart them.",
            ),
            Error::NotSuperuser(action) => (
                Uncounted(Code::ERRCODE_INSUFFICIENT_PRIVILEGE),
                format!("must be superuser to {action}"),
                "The high-water mark of idgen protects the ids of all databases of the cluster.".into(),
                "Privileges on the function are not sufficient: have a superuser call it.",
            ),
            Error::InRecovery(action) => (
                Uncounted(Code::ERRCODE_READ_ONLY_SQL_TRANSACTION),
                format!("cannot {action} during recovery"),
                "The high-water mark of idgen can only be changed on a primary.".into(),
                "Do it on the primary; the standbys follow.",
            ),
            Error::OtherEpoch => (
                Counted(Reason::OtherEpoch),
                "the epoch of the high-water mark of ids differs from \"idgen.epoch\"".into(),
                "The ids that this cluster already has count from the epoch of the mark. With another epoch they \
                 decode to wrong times, and new ids may lie years away from them. No id was minted."
                    .into(),
                "Set \"idgen.epoch\" to its previous value, or to that of the primary, and restart the server. To \
                 change the epoch for good, see snowflake_accept_epoch in the documentation of idgen.",
            ),
            Error::NotTheEpoch => (
                Uncounted(Code::ERRCODE_INVALID_PARAMETER_VALUE),
                "the epoch to accept differs from \"idgen.epoch\"".into(),
                "The view idgen_status shows the epoch in effect.".into(),
                "Set \"idgen.epoch\" to the new epoch on this server and every standby, restart them, and then \
                 accept it.",
            ),
            Error::MarkInFuture { by_ms } => (
                Uncounted(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                "the high-water mark of ids lies in the future".into(),
                format!(
                    "It is {} ahead of the system clock. No id is minted until it is within \"idgen.max_ahead\".",
                    duration(*by_ms)
                ),
                "Check the system clock. Restarting the server does not help.",
            ),
            Error::AnyLeap => (
                Uncounted(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                "\"idgen.max_clock_jump\" is -1: ids would follow a clock that jumps into the future".into(),
                "With -1, idgen does not compare the system clock with the time since boot.".into(),
                "Set a limit. To accept a single jump, call snowflake_accept_clock() as a superuser.",
            ),
            Error::StillPreloaded => (
                Uncounted(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                "cannot remove the mark of ids while \"idgen\" is preloaded".into(),
                "The mark is what keeps this server from repeating ids.".into(),
                "Take idgen out of shared_preload_libraries, restart the server, and try again.",
            ),
            Error::Mint(mint::Error::AdvanceTooFar { by_ms, max_ahead_ms }) => (
                Counted(Reason::BadArgument),
                "the id to advance past lies in the future".into(),
                format!(
                    "It is {by_ms} ms ahead of the system clock; \"idgen.max_ahead\" allows {max_ahead_ms} ms."
                ),
                "Check the system clock, and that the id has this layout and epoch.",
            ),
            Error::Mint(mint::Error::Exhausted) => (
                Counted(Reason::RangeUsedUp),
                "the range of ids is used up".into(),
                format!(
                    "Ids of all {SHARDS} shards cover the 2^40 milliseconds (34.8 years) that begin at \
                     \"idgen.epoch\"."
                ),
                "Check the system clock. A database that has truly reached the end needs a later \
                 \"idgen.epoch\" and new keys.",
            ),
            Error::NoLayout(name) => (
                Uncounted(Code::ERRCODE_INVALID_PARAMETER_VALUE),
                format!("layout \"{}\" does not exist", excerpt(name)),
                format!(
                    "The layouts of snowflake_decode are {}.",
                    LAYOUTS.iter().map(|layout| layout.name).collect::<Vec<_>>().join(", ")
                ),
                "The view snowflake_layouts describes them.",
            ),
            Error::NotOfLayout { id, layout, max } => (
                Uncounted(Code::ERRCODE_INVALID_PARAMETER_VALUE),
                format!("id \"{id}\" is out of range for layout \"{layout}\""),
                format!("snowflake_decode accepts ids between 0 and {max} for this layout."),
                "The view snowflake_layouts describes the layouts.",
            ),
            Error::BadShortcode(text, why) => (
                Uncounted(Code::ERRCODE_INVALID_TEXT_REPRESENTATION),
                format!("invalid short code: \"{}\"", excerpt(text)),
                format!("snowflake_from_shortcode cannot read it. {why}"),
                "A short code has 1 to 11 of the characters A-Z, a-z, 0-9, \"-\" and \"_\". A private post \
                 has a longer code; drop its last 28 characters, which are not part of the id.",
            ),
            Error::BadText(text, why) => (
                Uncounted(Code::ERRCODE_INVALID_TEXT_REPRESENTATION),
                format!("invalid id text: \"{}\"", excerpt(text)),
                format!("snowflake_from_text cannot read it. {why}"),
                "An id text has 13 of the characters 0-9 and A-Z without I, L, O and U. Lower case is not accepted: \
                 use upper().",
            ),
        };
        Text { class, message, detail, hint }
    }

    /// The reason for which a call with this error is refused; `None` for errors that are not counted.
    pub fn reason(&self) -> Option<Reason> {
        match self.text().class {
            Class::Counted(reason) => Some(reason),
            Class::Uncounted(_) => None,
        }
    }

    fn report(&self) -> ErrorReport {
        let Text { class, message, detail, hint } = self.text();
        let code = match class {
            Class::Counted(reason) => reason.code(),
            Class::Uncounted(code) => code,
        };
        ErrorReport::new(code, message, function_name!()).set_detail(detail).set_hint(hint)
    }

    /// Writes the error to the server log, at a level below ERROR.
    pub fn log(&self, level: PgLogLevel) {
        self.report().report(level);
    }

    /// Only the message, for the view `idgen_status`.
    pub fn message(&self) -> String {
        self.text().message
    }

    /// Raises the error.
    #[cold]
    #[inline(never)]
    pub fn raise(self) -> ! {
        self.report().report(PgLogLevel::ERROR);
        unreachable!("a report at ERROR does not return")
    }
}
