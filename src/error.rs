//! Every error and warning of the library: its SQLSTATE, message, DETAIL and HINT. No other module raises errors.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idgen_core::error::Error as MintError;
use idgen_ids::OutOfRange;
use idgen_ids::epoch::utc;
use idgen_ids::foreign::LAYOUTS;
use idgen_ids::id::SHARDS;
use idgen_ids::text::{BadText, excerpt};
use pgrx::PgLogLevel;
use pgrx::PgSqlErrorCode as Code;
use pgrx::pg_sys::panic::ErrorReport;

macro_rules! reasons {
    ($($reason:ident $name:literal $code:ident;)+) => {
        /// The reasons for which calls are refused, as counted by the view `idgen_refusals`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
            $($reason,)+
        }

        impl Reason {
            /// All reasons in the order of their numbers, with their names and the SQLSTATEs of their errors.
            pub const ALL: [(Reason, &str, Code); [$($name),+].len()] =
                [$((Reason::$reason, $name, Code::$code)),+];
        }
    };
}

// 40001 is for conditions that pass without action: the call has waited too long, or a prepared transaction has yet to
// end. To clients it means that they should try the whole transaction again. 55000 is for what an administrator has to
// change first. docs/reference.md and docs/examples/prometheus/alerts.yml list those that are mistakes of the caller.
reasons! {
    ShardFull "shard_full" ERRCODE_T_R_SERIALIZATION_FAILURE;
    BatchTooLarge "batch_too_large" ERRCODE_INVALID_PARAMETER_VALUE;
    ClockBehind "clock_behind" ERRCODE_T_R_SERIALIZATION_FAILURE;
    ClockBehindMark "clock_behind_mark" ERRCODE_T_R_SERIALIZATION_FAILURE;
    ClockJumped "clock_jumped" ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
    ClockBeforeEpoch "clock_before_epoch" ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
    MarkNotDurable "mark_not_durable" ERRCODE_T_R_SERIALIZATION_FAILURE;
    OtherEpoch "other_epoch" ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
    NoOrigin "no_origin" ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
    RangeUsedUp "range_used_up" ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED;
    SettingNotTaken "setting_not_taken" ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
    ShardNotAllowed "shard_not_allowed" ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
    ShardClosed "shard_closed" ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
    ShardUnset "shard_unset" ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
    Recovery "recovery" ERRCODE_READ_ONLY_SQL_TRANSACTION;
    PreparedTransactions "prepared_transactions" ERRCODE_T_R_SERIALIZATION_FAILURE;
    OneSnapshot "one_snapshot" ERRCODE_ACTIVE_SQL_TRANSACTION;
    NullArgument "null_argument" ERRCODE_NULL_VALUE_NOT_ALLOWED;
    BadArgument "bad_argument" ERRCODE_INVALID_PARAMETER_VALUE;
}

/// The SQLSTATE of an error and, if the calls refused with it are counted, the reason.
pub struct Class(pub Code, pub Option<Reason>);

impl From<Code> for Class {
    fn from(code: Code) -> Class {
        Class(code, None)
    }
}

impl From<Reason> for Class {
    fn from(reason: Reason) -> Class {
        Class(Reason::ALL[reason as usize].2, Some(reason))
    }
}

/// What the client or the server log gets. The message or the DETAIL of an error names idgen or one of its functions,
/// for readers of a log who do not know that it is installed.
pub struct Row {
    pub class: Class,
    /// The name of the variant.
    variant: &'static str,
    /// Its code and severity, if the view `idgen_status` may show it.
    pub known: Option<Known>,
    pub message: String,
    detail: String,
    pub hint: String,
}

/// How programs recognize a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// A short word that never changes.
    pub code: &'static str,
    /// `error` if it keeps ids from being minted, now or after the next restart, or may take the server down or let ids
    /// be repeated; otherwise `warning`.
    pub severity: &'static str,
}

impl From<Row> for ErrorReport {
    /// By the routine, programs can tell errors of one SQLSTATE apart: it is the reason of a refusal.
    fn from(Row { class: Class(code, reason), variant, known, message, detail, hint }: Row) -> ErrorReport {
        let reason = reason.map(|reason| Reason::ALL[reason as usize].1);
        let routine = reason.or(known.map(|known| known.code)).unwrap_or(variant);
        ErrorReport::new(code, message, routine).set_detail(detail).set_hint(hint)
    }
}

/// An enum of which each variant has a row.
pub trait Table: Sized {
    /// The row.
    fn row(&self) -> Row;

    /// One value for each row.
    #[cfg(any(test, feature = "pg_test"))]
    fn samples() -> Vec<Self>;
}

/// Defines a table. Each row has the variant and its fields, with a sample of each for the tests; what its texts need
/// besides the fields; and the class, the severity and the code if `idgen_status` may show it, the message, the DETAIL
/// and the HINT. `enum Name: Variant(Other)` declares the enum
/// as well, with a variant for the rows of another table. `impl Name` is for an enum of the core.
macro_rules! table {
    ($(#[$doc:meta])* enum $name:ident: $inner:ident($other:ty) { $(
        $variant:ident
        $(($($field:ident: $type:ty = $sample:expr),+))?
        $({ $($member:ident: $member_type:ty = $member_sample:expr),+ })?
        $(where $($local:pat_param = $value:expr),+)?
        => $class:expr, $($severity:ident $code:literal,)? $($text:literal),+;
    )+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $inner($other),
            $($variant $(($($type),+))? $({ $($member: $member_type),+ })?,)+
        }

        impl From<$other> for $name {
            fn from(other: $other) -> $name {
                $name::$inner(other)
            }
        }

        table! { impl $name: $inner($other) { $(
            $variant $(($($field = $sample),+))? $({ $($member = $member_sample),+ })?
            $(where $($local = $value),+)?
            => $class, $($severity $code,)? $($text),+;
        )+ } }
    };
    (impl $name:ident $(: $inner:ident($other:ty))? { $(
        $variant:ident
        $(($($field:ident = $sample:expr),+))?
        $({ $($member:ident = $member_sample:expr),+ })?
        $(where $($local:pat_param = $value:expr),+)?
        => $class:expr, $($severity:ident $code:literal,)? $message:literal, $detail:literal, $hint:literal;
    )+ }) => {
        impl Table for $name {
            fn row(&self) -> Row {
                match self {
                    $($name::$inner(other) => other.row(),)?
                    $($name::$variant $(($($field),+))? $({ $($member),+ })? => {
                        $($(let $local = $value;)+)?
                        Row {
                            class: $class.into(),
                            variant: stringify!($variant),
                            known: [$(Known { code: $code, severity: stringify!($severity) })?].first().copied(),
                            message: format!($message),
                            detail: format!($detail),
                            hint: format!($hint),
                        }
                    })+
                }
            }

            #[cfg(any(test, feature = "pg_test"))]
            fn samples() -> Vec<$name> {
                let own = [$($name::$variant $(($($sample),+))? $({ $($member: $member_sample),+ })?),+];
                own.into_iter()$(.chain(<$other>::samples().into_iter().map($name::$inner)))?.collect()
            }
        }
    };
}

table! {
    /// Why a call cannot be served.
    enum Error: Mint(MintError) {
        Null(argument: &'static str = "shard")
            where hint = if *argument == "shard" {
                "Pass a shard, or call snowflake_next_id() without an argument, which uses \"idgen.shard\"."
            } else {
                "Pass a value that is not null."
            }
            => Reason::NullArgument,
            "argument \"{argument}\" must not be null",
            "idgen does not accept null for this argument.",
            "{hint}";
        Part(part: OutOfRange = OutOfRange { part: "shard", value: 8192, max: 8191 })
            where OutOfRange { part, value, max } = part
            => Reason::BadArgument,
            "{part} {value} is out of range",
            "The {part} of an id of idgen must be between 0 and {max}.",
            "Pass a {part} in this range.";
        NegativeCount(count: i32 = -1) => Reason::BadArgument,
            "count {count} is negative",
            "snowflake_next_ids cannot mint fewer than 0 ids.",
            "Ask for 0 or more ids.";
        Timestamp => Code::ERRCODE_DATETIME_FIELD_OVERFLOW,
            "timestamp is outside the range of ids",
            "Ids cover the 2^40 milliseconds (34.8 years) that begin at \"idgen.epoch\".",
            "The columns epoch and ends_at of the view idgen_status show the range.";
        EpochArgument => Code::ERRCODE_DATETIME_FIELD_OVERFLOW,
            "timestamp out of range",
            "Counted from the epoch given to snowflake_time, the id has no time that PostgreSQL can represent.",
            "Pass the finite timestamp from which the milliseconds of the id are counted.";
        ShardUnset { beside_citus: bool = true }
            where hint = if *beside_citus {
                "Set \"idgen.shard\" with ALTER SYSTEM on this node and reload the configuration. Citus gives all nodes \
                 what ALTER DATABASE and ALTER ROLE set."
            } else {
                "Set \"idgen.shard\" with SET, ALTER DATABASE or ALTER ROLE, or call snowflake_next_id(shard)."
            }
            => Reason::ShardUnset,
            "no shard is set for this session",
            "snowflake_next_id() without an argument mints for the shard in \"idgen.shard\".",
            "{hint}";
        ShardNotAllowed { shard: i32 = 1, allowed: String = "0".into() } => Reason::ShardNotAllowed,
            "this server may not mint ids for shard {shard}",
            "\"idgen.allowed_shards\" is \"{allowed}\".",
            "Connect to the server that holds the shard, or add the shard to the setting and reload the configuration \
             once no other server mints for it.";
        NoShardsBesideCitus => Reason::ShardNotAllowed,
            error "citus-without-list",
            "\"idgen.allowed_shards\" must be set on a server that preloads Citus",
            "Citus runs defaults and functions on any of its nodes, and two nodes that mint for the same shard would \
             produce the same ids. An empty list therefore allows no shard on this server.",
            "Give each node shards that no other node has, such as \"0-99\" and \"100-199\", or \"0-8191\" if there is \
             only one node, and reload the configuration.";
        NotPreloaded => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "\"idgen\" must be loaded via \"shared_preload_libraries\"",
            "Minting and watching need shared memory, which idgen can allocate only when the server starts.",
            "Add idgen to shared_preload_libraries in postgresql.conf and restart the server.";
        NotInDatabase => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "\"idgen.state\" can be read only in a session of a database",
            "To tell the state, idgen reads the catalogs.",
            "Connect to any database.";
        OldRelease => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "\"idgen\" must be loaded via \"shared_preload_libraries\" on this release of PostgreSQL",
            "Without that, idgen allocates shared memory when a session first needs it. Before PostgreSQL 17.8 and 18.2, \
             one failure to do so would last until the server is restarted.",
            "Install the latest minor release of PostgreSQL, or add idgen to shared_preload_libraries in \
             postgresql.conf, and restart the server.";
        SettingNeedsPreload { setting: &'static str = "idgen.epoch", source: &'static str = "in the session" }
            => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "\"idgen\" must be loaded via \"shared_preload_libraries\" because \"{setting}\" is set",
            "It is set {source}, or was when this session loaded the library. Only a preload gives the setting the same \
             value in all sessions, so without one idgen works with the defaults only.",
            "Add idgen to shared_preload_libraries in postgresql.conf and restart the server. Or, unless it keeps this \
             server from minting for shards of another one, remove the setting, reload the configuration and connect again.";
        ParallelWorker => Code::ERRCODE_INVALID_TRANSACTION_STATE,
            "cannot mint or watch ids during a parallel operation",
            "A parallel worker has called a function of idgen.",
            "Declare the function that makes the call PARALLEL RESTRICTED or PARALLEL UNSAFE.";
        OtherLibrary { version: String = "0.1.0".into(), own: String = "0.2.0".into() }
            => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "another version of the \"idgen\" library is in use on this server",
            "Version {version} has allocated the shared memory, and version {own}, which this session has loaded, cannot \
             use it.",
            "Restart the server.";
        MarkRemoved => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            error "mark-removed",
            "the high-water mark has been removed since the server started",
            "To mint an id, idgen would have to write the mark again, after snowflake_remove_mark() was called.",
            "If the server is to mint ids again, make sure that its clock is right, and restart it. Nothing else then keeps \
             it from repeating ids.";
        FirstMark => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            error "no-mark",
            "this cluster has no high-water mark of ids yet",
            "Where \"idgen\" is not loaded via \"shared_preload_libraries\", only the session of a superuser may write the \
             first one, because a standby without a free replication origin shuts down when it replays it.",
            "Make sure that idgen_status.warning is null on each standby. Then, as a superuser, in a database that belongs \
             to a superuser, run CREATE EXTENSION idgen or, if that exists there, SELECT snowflake_check().";
        NoLastId => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "no id has been minted in this session yet",
            "snowflake_last_id() returns the last id that this session itself has minted.",
            "Call snowflake_next_id first.";
        BadSetting(name: &'static str = "idgen.epoch")
            where act = if *name == "idgen.epoch" { "restart the server" } else { "reload the configuration" }
            => Reason::SettingNotTaken,
            error "setting-not-accepted",
            "the value configured for \"{name}\" was not accepted",
            "PostgreSQL logged a warning and fell back to the default, which idgen refuses to use.",
            "Write a valid value into the configuration file, even if it is the default, and {act}. It cannot be set for a \
             database, a role or a session.";
        ClockBeforeEpoch { by_ms: u64 = 1 } => Reason::ClockBeforeEpoch,
            error "clock-before-epoch",
            "the system clock is before \"idgen.epoch\"",
            "The clock is {by_ms} ms before the epoch.",
            "Check the system clock and the setting.";
        OneSnapshot => Reason::OneSnapshot,
            "snowflake_safe_horizon() must run in a READ COMMITTED transaction",
            "REPEATABLE READ and SERIALIZABLE keep an old snapshot and could miss rows.",
            "Call it in a transaction of its own, before the one that reads.";
        NoOrigin { needed: usize = 1 } => Reason::NoOrigin,
            "no replication origin is free for the high-water mark of ids",
            "idgen needs one of those that \"max_replication_slots\" (from PostgreSQL 18 on, \
             \"max_active_replication_origins\") allows, and all of them are in use. The setting must be at least \
             {needed}.",
            "Raise the setting on every standby first, then on this server, and restart them. A standby without a free \
             origin shuts down when it replays the first mark.";
        NoRoom { setting: &'static str = "max_replication_slots", room: usize = 0, needed: usize = 1 }
            => Code::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            error "no-room",
            "\"{setting}\" must be at least {needed} for idgen (now {room})",
            "The high-water mark takes one replication origin, in addition to all others in use. Without room for all of \
             them, the server mints no id, shuts down in recovery when it replays one too many, and does not start once \
             it has saved them all.",
            "Raise it on every standby first, then on the primary, and restart them once their clocks are right.";
        NotSuperuser(action: &'static str = "act") => Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "must be superuser to {action}",
            "The shards and the high-water mark of idgen belong to all databases of the cluster.",
            "Only a superuser may do this, even if other roles may execute the function.";
        InRecovery(action: &'static str = "act") => Code::ERRCODE_READ_ONLY_SQL_TRANSACTION,
            "cannot {action} during recovery",
            "A server in recovery mints no ids, and leaves the high-water mark of idgen to the primary.",
            "Do it on the primary.";
        MarkInUse => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "cannot remove the high-water mark after the server has begun to use it",
            "The mark is what keeps this server from repeating the ids that snowflake_next_id has minted.",
            "Restart the server, and call the function before anything mints an id or asks for the safe horizon.";
        NotTheEpoch => Code::ERRCODE_INVALID_PARAMETER_VALUE,
            "the epoch to accept differs from \"idgen.epoch\"",
            "The view idgen_status shows the epoch in effect.",
            "Set \"idgen.epoch\" to the new epoch on this server and every standby, restart them, and then accept it.";
        NoLayout(name: String = "x".into())
            where name = excerpt(name), layouts = layout_names()
            => Code::ERRCODE_INVALID_PARAMETER_VALUE,
            "layout \"{name}\" does not exist",
            "The layouts of snowflake_decode are {layouts}.",
            "The view snowflake_layouts describes them.";
        NotOfLayout { id: i64 = 1, layout: &'static str = "x", max: u64 = 0 } => Code::ERRCODE_INVALID_PARAMETER_VALUE,
            "id {id} is out of range for layout \"{layout}\"",
            "snowflake_decode accepts ids between 0 and {max} for this layout.",
            "The view snowflake_layouts describes the layouts.";
        BadShortcode(text: String = "x".into(), why: BadText = BadText::TooGreat) where text = excerpt(text)
            => Code::ERRCODE_INVALID_TEXT_REPRESENTATION,
            "invalid short code: \"{text}\"",
            "snowflake_from_shortcode cannot read it. {why}",
            "A short code has 1 to 11 of the characters A-Z, a-z, 0-9, \"-\" and \"_\". A private post has a longer \
             code; drop its last 28 characters, which are not part of the id.";
        BadText(text: String = "x".into(), why: BadText = BadText::TooGreat) where text = excerpt(text)
            => Code::ERRCODE_INVALID_TEXT_REPRESENTATION,
            "invalid id text: \"{text}\"",
            "snowflake_from_text cannot read it. {why}",
            "An id text has 13 of the characters 0-9 and A-Z without I, L, O and U. Lower case is not accepted: use \
             upper().";
    }
}

table! {
    impl MintError {
        BatchTooLarge { count = 1, most = 0 } => Reason::BatchTooLarge,
            "count {count} is more ids than one call can mint",
            "This shard can provide at most {most} now, as far as \"idgen.max_ahead\" lets it run ahead of the clock \
             and \"idgen.max_wait\" lets a call wait. No id was minted.",
            "Ask for fewer ids at once, use several shards, or raise \"idgen.max_wait\".";
        BatchesBefore { shard = 1.try_into().expect("a shard"), count = 1, ahead = 1 }
            where shard = i32::from(*shard)
            => Reason::ShardFull,
            "shard {shard} has other batches to mint first",
            "They still have to take {ahead} ids, after which {count} more would take longer than \"idgen.max_wait\" \
             allows. No id was minted.",
            "Try again, ask for fewer ids at once, use several shards, or raise \"idgen.max_wait\".";
        ShardNotAllowed { shard = 1.try_into().expect("a shard") }
            where shard = i32::from(*shard)
            => Reason::ShardNotAllowed,
            "this server may not mint ids for shard {shard}",
            "The server has read a value of \"idgen.allowed_shards\" without the shard, and this session another one.",
            "Connect to the server that holds the shard, or add the shard to the setting and reload the configuration \
             once no other server mints for it.";
        ShardClosed { shard = 1.try_into().expect("a shard") }
            where shard = i32::from(*shard)
            => Reason::ShardClosed,
            "shard {shard} is closed on this server",
            "snowflake_close_shard({shard}) has been called here, so that another server can mint for the shard.",
            "Connect to the server that holds the shard. Reopen it here with snowflake_reopen_shard({shard}) only if no \
             other server has minted for it since.";
        ShardFull { shard = 1.try_into().expect("a shard"), max_ahead_ms = 1, waited_ms = 1 }
            where shard = i32::from(*shard)
            => Reason::ShardFull,
            "shard {shard} has run out of ids for now",
            "Its ids are as far ahead of the clock as \"idgen.max_ahead\" ({max_ahead_ms} ms) allows. A shard has 1024 \
             ids per millisecond (4096 per second for snowflake_next_id_js). The call waited {waited_ms} ms.",
            "Spread the load over more shards, ask for fewer ids, or raise \"idgen.max_wait\".";
        ClockBehindMark { by_ms = 1, max_ahead_ms = 1, waited_ms = 1 }
            where resumes = resumes(*by_ms, *max_ahead_ms), hint = if *by_ms > HOUR_MS {
                "The clock is behind now, or it was ahead before the server stopped. Correct it if it is wrong. If it \
                 is right, wait until it has passed the mark. As a last resort, move \"idgen.epoch\" back by as much and a \
                 minute, restart, and call snowflake_accept_epoch(), in a database that belongs to a superuser: all \
                 earlier ids then decode to other times. A restart alone does not help."
            } else {
                "If that is longer than a few seconds, the clock was ahead before the server stopped, or is behind \
                 now: check its synchronization. Restarting the server does not help."
            }
            => Reason::ClockBehindMark,
            "the system clock is behind ids minted before the last restart",
            "The high-water mark stored when the server started, or raised since, is {by_ms} ms ahead of the clock; \
             \"idgen.max_ahead\" allows {max_ahead_ms} ms. The call waited {waited_ms} ms. {resumes}",
            "{hint}";
        ClockBehind { shard = 1.try_into().expect("a shard"), by_ms = 1, max_ahead_ms = 1, waited_ms = 1 }
            where shard = i32::from(*shard), resumes = resumes(*by_ms, *max_ahead_ms)
            => Reason::ClockBehind,
            "the system clock is behind the ids of shard {shard}",
            "The next id is {by_ms} ms ahead of the clock; \"idgen.max_ahead\" allows {max_ahead_ms} ms. The call \
             waited {waited_ms} ms. {resumes}",
            "If the clock was set back, check its synchronization. Do not restart the server: after that, all shards \
             would have to wait for the clock, not only those in use.";
        ClockBehindIds { by_ms = 1, max_ahead_ms = 1, waited_ms = 1 }
            where resumes = resumes(*by_ms, *max_ahead_ms)
            => Reason::ClockBehind,
            "the system clock is behind the ids already minted",
            "The furthest of them is {by_ms} ms ahead of the clock; \"idgen.max_ahead\" allows {max_ahead_ms} ms. The \
             call waited {waited_ms} ms. {resumes}",
            "If the clock was set back, check its synchronization. Do not restart the server: after that, all shards \
             would have to wait for the clock, not only those in use.";
        ClockStands { waited_ms = 1 } => Reason::ClockBehind,
            "the system clock stands still",
            "snowflake_advance has advanced the shard. Until the clock moves on, sessions may still mint ids that they \
             took before. The call waited {waited_ms} ms.",
            "Check the clock, then call the function again.";
        ClockJumped { by_ms = 1 } where span = duration(*by_ms) => Reason::ClockJumped,
            error "clock-jumped",
            "the system clock jumped forward",
            "It moved {by_ms} ms ({span}) further than the time since boot, which is more than \
             \"idgen.max_clock_jump\" allows. No id was minted and nothing was written, because ids from the future \
             cannot be taken back.",
            "If the clock is wrong now, correct it. Do not restart the server, because that would accept the jump. If \
             the clock was wrong and is right now, call snowflake_accept_clock() as a superuser, in a database that \
             belongs to one.";
        MarkNotRenewed { waited_ms = 1 } => Reason::MarkNotDurable,
            "idgen could not make its high-water mark durable within \"idgen.max_wait\"",
            "The call waited {waited_ms} ms for the WAL to be flushed and, if \
             \"synchronous_standby_names\" requires it, for synchronous standbys to acknowledge it.",
            "Check the disk that holds the WAL and the view pg_stat_replication.";
        Recovery => Reason::Recovery,
            "cannot mint ids during recovery",
            "idgen mints on a primary only, because a server in recovery cannot write the high-water mark.",
            "Connect to the primary.";
        OtherEpoch => Reason::OtherEpoch,
            error "epoch-of-mark",
            "the epoch of the high-water mark of ids differs from \"idgen.epoch\"",
            "The ids that this cluster already has count from the epoch of the mark. With another epoch they decode to \
             wrong times, and new ids may lie years away from them. No id was minted.",
            "Set \"idgen.epoch\" to its previous value, or to that of the primary, and restart the server. To change \
             the epoch for good, which gives all ids another time, set it on every standby too, and call \
             snowflake_accept_epoch(epoch).";
        Prepared { count = 1 } => Reason::PreparedTransactions,
            "cannot determine the safe horizon while there are prepared transactions",
            "This cluster has {count} of them, and idgen has no record of when they minted ids.",
            "Try again. If pg_prepared_xacts lists one that will never be ended, use COMMIT PREPARED or ROLLBACK PREPARED.";
        AdvanceTooFar { by_ms = 1, max_ahead_ms = 1 } => Reason::BadArgument,
            "the id to advance past lies in the future",
            "It is {by_ms} ms ahead of the system clock; \"idgen.max_ahead\" allows {max_ahead_ms} ms.",
            "Check the system clock, and that the id has this layout and epoch.";
        RaiseTooFar { by_ms = 1, max_ahead_ms = 1 } => Code::ERRCODE_INVALID_PARAMETER_VALUE,
            "the time to raise the high-water mark past lies in the future",
            "It is {by_ms} ms ahead of the system clock; \"idgen.max_ahead\" allows {max_ahead_ms} ms. No id is minted \
             later than that.",
            "Check the time, and the clocks of this server and of the one that it comes from. If they are right, wait until \
             this clock has come closer to it.";
        Exhausted => Reason::RangeUsedUp,
            error "range-used-up",
            "the range of ids is used up",
            "Ids of all {SHARDS} shards cover the 2^40 milliseconds (34.8 years) that begin at \"idgen.epoch\".",
            "Check the system clock and \"idgen.epoch\". At the true end, only a later epoch with new keys helps.";
    }
}

table! {
    /// A warning in the server log or in the view `idgen_status`, or an error that the next call would raise. No call
    /// raises a warning.
    enum Warning: Error(Error) {
        MarkInFuture { by_ms: u64 = 1 }
            where span = duration(*by_ms), hint = if *by_ms > HOUR_MS {
                "Correct the clock if it is wrong. If it is right, wait until it has passed the mark. A restart does not \
                 help. Only if that takes too long, move \"idgen.epoch\" back: docs/operations.md says how."
            } else {
                "Correct the clock if it is wrong. If it is right, wait until it has passed the mark, or set \
                 \"idgen.max_ahead\" to as much until then and reload the configuration. A restart does not help."
            }
            => Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, error "mark-in-future",
            "the high-water mark of ids lies in the future",
            "It is {span} ahead of the system clock. No id is minted until it is within \"idgen.max_ahead\".",
            "{hint}";
        FirstMark { connected: usize = 1 } => Code::ERRCODE_WARNING,
            "the high-water mark of ids is about to be written for the first time, with {connected} WAL receivers \
             connected",
            "Every standby needs a free replication origin for it. A standby without one shuts down when it replays the \
             mark.",
            "Query idgen_status.warning on each standby.";
        TooFewStandbys { streaming: usize = 0, needed: usize = 1 } => Code::ERRCODE_WARNING, error "sync-too-few",
            "too few synchronous standbys are streaming: {streaming} of {needed}",
            "Calls for ids wait and then fail, as commits wait, until enough of them are.",
            "Start the missing standbys. Before you take one out of \"synchronous_standby_names\", make sure that it has \
             not been promoted: two primaries would produce the same ids.";
        NotAcknowledged => Code::ERRCODE_WARNING, error "mark-not-durable",
            "synchronous standbys have not acknowledged the high-water mark of ids for over a second",
            "Calls for ids wait and then fail, as commits wait, until they have.",
            "See in pg_stat_replication what delays them. Before you take one out of \"synchronous_standby_names\", make \
             sure that it has not been promoted: two primaries would produce the same ids.";
        ClockBehind => Code::ERRCODE_WARNING, error "clock-behind",
            "the system clock is behind the ids already minted",
            "Calls for the shards that are ahead of it by more than \"idgen.max_ahead\" wait and then fail.",
            "If the clock was set back, check its synchronization. Do not restart the server: after that, all shards \
             would have to wait for the clock, not only those in use.";
        MarkHasName { origin: u16 = 65534 } => Code::ERRCODE_WARNING, error "origin-named",
            "replication origin {origin}, which holds the high-water mark of ids, has a name",
            "Under its name the mark can be moved back or dropped, after which ids would be repeated.",
            "Do not drop the origin. As a superuser with \"allow_system_table_mods\" on, run DELETE FROM \
             pg_catalog.pg_replication_origin WHERE roident = {origin}; this only takes the name away.";
        NotInEffect(name: String = "idgen.epoch".into()) => Code::ERRCODE_WARNING, error "setting-refused",
            "the configuration files contain a value for \"{name}\" that is not in effect",
            "It was refused, or it waits for a restart of the server.",
            "Read the column error of pg_file_settings, correct the line, and reload the configuration. Do not restart the \
             server for another \"idgen.epoch\": it would mint no ids until that was accepted.";
        RangeEnds { years: f64 = 1.0 } => Code::ERRCODE_WARNING, warning "range-ends",
            "the range of ids ends in {years:.1} years",
            "Ids cover the 2^40 milliseconds (34.8 years) that begin at \"idgen.epoch\".",
            "Plan for a later epoch and new keys.";
        AnyJump => Code::ERRCODE_WARNING, warning "clock-jumps-unchecked",
            "\"idgen.max_clock_jump\" is -1: the check for clock jumps is disabled",
            "Ids of a clock that is far ahead cannot be taken back.",
            "Set a limit, such as the default of one hour. snowflake_accept_clock() accepts a single jump.";
    }
}

/// If a correct clock is further behind than this, it will not catch up soon, and an administrator has to act.
const HOUR_MS: u64 = 3_600_000;

/// A sentence that says when minting resumes with a clock that is this far behind.
fn resumes(by_ms: u64, max_ahead_ms: u64) -> String {
    let behind_ms = by_ms.saturating_sub(max_ahead_ms);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = (now + Duration::from_millis(behind_ms)).as_millis().next_multiple_of(1000);
    let at = i64::try_from(at).ok().and_then(utc).map_or_else(String::new, |at| format!(", at {at}"));
    format!("By this server's clock, minting resumes in {}{at}.", duration(behind_ms))
}

fn layout_names() -> String {
    LAYOUTS.iter().map(|layout| layout.name).collect::<Vec<_>>().join(", ")
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

/// The five characters of an SQLSTATE, each of which PostgreSQL keeps in six bits.
pub fn sqlstate(code: Code) -> String {
    let bits = code as u32;
    (0..5).map(|place| char::from((bits >> (6 * place) & 0x3F) as u8 + b'0')).collect()
}

impl From<OutOfRange> for Error {
    fn from(part: OutOfRange) -> Error {
        Error::Part(part)
    }
}

impl From<MintError> for Warning {
    fn from(why: MintError) -> Warning {
        Error::from(why).into()
    }
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> ErrorReport {
        error.row().into()
    }
}

impl Error {
    /// The reason for which a call with this error is refused; `None` for errors that are not counted.
    pub fn reason(&self) -> Option<Reason> {
        self.row().class.1
    }

    /// Raises the error.
    #[cold]
    #[inline(never)]
    pub fn raise(self) -> ! {
        ErrorReport::from(self).report(PgLogLevel::ERROR);
        unreachable!("a report at ERROR does not return")
    }
}

impl Warning {
    /// Writes the warning to the server log; in a session at another level, so that its client does not get it.
    pub fn log(&self, in_session: bool) {
        let level = if in_session { PgLogLevel::LOG_SERVER_ONLY } else { PgLogLevel::WARNING };
        ErrorReport::from(self.row()).report(level);
    }
}
