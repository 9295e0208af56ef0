//! **idgen** mints unique, time-sorted 64-bit shard ids inside PostgreSQL.
//!
//! Where things live:
//!
//! | room | what |
//! |---|---|
//! | [`layout`], [`slot`], [`lease`], [`reservation`], [`epoch`], [`shard_set`] | pure: no PostgreSQL, no unsafe; property-tested and model-checked |
//! | [`js`], [`layouts`], [`forms`] | pure too: JavaScript-safe ids, other systems' ids, and the texts of an id |
//! | [`origins`] | pure too: how many replication origins a server needs room for, as the mark is one |
//! | [`clock`] | reading the clock |
//! | [`settings`] | every setting, with why its default |
//! | [`shmem`], [`pg`], [`compat`] | the only `unsafe`: shared memory, raw PostgreSQL calls, and what its versions differ in |
//! | [`mint`] | the one path from a call to an id |
//! | [`high_water`] | the durable mark: its steps in the order that keeps ids unique |
//! | [`error`] | every error and its SQLSTATE; the only place that raises |
//! | [`functions`] | the SQL entries, a few lines each |
//! | `sql/idgen.sql` | the whole SQL surface |

pub mod clock;
#[allow(unsafe_code)]
pub mod compat;
pub mod epoch;
pub mod error;
mod fault;
pub mod forms;
pub mod functions;
pub mod high_water;
pub mod js;
pub mod layout;
pub mod layouts;
pub mod lease;
pub mod mint;
pub mod origins;
#[allow(unsafe_code)]
pub mod pg;
pub mod reservation;
pub mod settings;
pub mod shard_set;
#[allow(unsafe_code)]
pub mod shmem;
pub mod slot;

pgrx::pg_module_magic!(name, version);
pgrx::extension_sql_file!("../sql/takeover/before.sql", name = "before", bootstrap);
pgrx::extension_sql_file!("../sql/idgen.sql", name = "idgen");
pgrx::extension_sql_file!("../sql/takeover/after.sql", name = "after", finalize);

/// Called by PostgreSQL when it loads the library: in the postmaster where
/// `shared_preload_libraries` names it, otherwise in the first backend that calls a function.
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    settings::define();
    if pg::preloading() {
        shmem::install_hooks();
        pg::look_up_release();
        pg::watch_transactions();
        if pg::in_postmaster() {
            log_problems();
        }
    }
}

/// Writes to the log what keeps ids from being minted. The server starts all the same: a database must not be
/// kept down by a clock. Without room for the mark PostgreSQL may end it in a moment, so that is said now.
fn log_problems() {
    let room = high_water::room(high_water::saved_origins());
    for problem in room.err().into_iter().chain(mint::problem()) {
        problem.log(pgrx::PgLogLevel::WARNING);
    }
}

#[cfg(any(test, feature = "pg_test"))]
mod pg_tests;

/// What `cargo pgrx test` asks of an extension.
#[cfg(test)]
pub mod pg_test {
    /// Runs once before the test server starts.
    pub fn setup(_options: Vec<&str>) {}

    /// Settings of the test server.
    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["shared_preload_libraries = 'idgen'"]
    }
}
