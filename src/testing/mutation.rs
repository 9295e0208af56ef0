//! The known ways in which the program can be wrong, for tests of the tests: `idgen.mutation`.

use std::cell::Cell;
use std::ffi::{CStr, CString};

use pgrx::guc::{GucContext, GucSetting};

use crate::pg::local::Local;
use crate::pg::setting::{self, Complaint, TextSetting};

/// Declares the mutations with their names.
macro_rules! mutations {
    ($($(#[$doc:meta])+ $mutation:ident = $name:literal,)+) => {
        /// A known way to be wrong.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Mutation {
            $($(#[$doc])+ $mutation,)+
        }

        fn named(name: &str) -> Option<Mutation> {
            match name {
                $($name => Some(Mutation::$mutation),)+
                _ => None,
            }
        }
    };
}

mutations! {
    /// The mark's WAL is not flushed.
    NoFlush = "no-flush",
    /// The mark is kept in shared memory and by checkpoints, but not in the WAL.
    NoWal = "no-wal",
    /// A limit is published as soon as it is in the WAL's buffers.
    PublishedFirst = "published-first",
    /// The stored mark is not taken over.
    NoFloor = "no-floor",
    /// The mark is taken over while recovery may still raise it.
    LoadedInRecovery = "loaded-in-recovery",
    /// The mark is under another number than in other releases of the library.
    OtherOrigin = "other-origin",
    /// A mark of another epoch is taken for one of this epoch.
    AnyEpoch = "any-epoch",
    /// Synchronous standbys are never waited for.
    NoStandbys = "no-standbys",
    /// Whether there are synchronous standbys is read only when a statement begins.
    StandbysOfStatement = "standbys-of-statement",
    /// While `idgen.max_lease` is not 64, the slot advances by half of what a session takes.
    LeaseBySetting = "lease-by-setting",
    /// A shard whose next id is ahead of the clock restarts at the clock.
    FollowsClock = "follows-clock",
    /// The clock is not read for every id.
    OldClock = "old-clock",
    /// All shards are allowed.
    AnyShard = "any-shard",
    /// The slot of a shard is changed without its lock.
    NoLock = "no-lock",
    /// An advance leaves the slot as it is.
    AdvanceForgotten = "advance-forgotten",
    /// A shard that is closed mints on.
    NotClosed = "not-closed",
    /// The JavaScript-safe ids of a shard are neither closed nor advanced.
    JsForgotten = "js-forgotten",
    /// The horizon does not look at prepared transactions.
    NoPrepared = "no-prepared",
    /// The horizon does not know of open transactions.
    NoStart = "no-start",
    /// The horizon does not keep ids from being minted below it.
    NoRaisedFloor = "no-raised-floor",
    /// A claim to renew never expires.
    ClaimForever = "claim-forever",
    /// A session that has waited for standbys for a while no longer checks them.
    GivesUp = "gives-up",
    /// A session that began in recovery stays there.
    StaysInRecovery = "stays-in-recovery",
}

static TEXT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static MUTATION: Local<Cell<Option<Mutation>>> = Local::new(Cell::new(None));

/// `idgen.mutation`.
struct Setting;

impl TextSetting for Setting {
    fn check(text: &str) -> Result<(), Complaint> {
        if text.is_empty() || named(text).is_some() {
            return Ok(());
        }
        Err(Complaint {
            detail: format!("There is no mutation {text:?}."),
            hint: "They are in src/testing/mutation.rs.",
        })
    }

    fn assign(text: &str) {
        MUTATION.set(named(text));
    }
}

/// Defines the setting.
pub fn define() {
    const NAME: &CStr = c"idgen.mutation";
    setting::define_text::<Setting>(
        NAME,
        c"Sets the known way in which the program is wrong, for tests of the tests.",
        c"",
        &TEXT,
        GucContext::Sighup,
    );
}

/// Whether the program is wrong in this way.
#[inline]
pub fn is(mutation: Mutation) -> bool {
    MUTATION.get() == Some(mutation)
}
