//! **idgen** mints unique, time-sorted 64-bit shard ids inside PostgreSQL.
//!
//! What an id is and how it is minted is in the crate `idgen-core`, without PostgreSQL and without `unsafe`. This
//! crate is the skin around it. Its rooms, from the top down; none names one above it:
//!
//! | room | what |
//! |---|---|
//! | `functions` | the SQL entries, a few lines each; `sql/idgen.sql` declares them |
//! | `room` | whether PostgreSQL has room for the mark, and its removal |
//! | `mutant` | the server that ids are minted by, in tests a wrong one |
//! | `server` | the core's trait, on PostgreSQL |
//! | `fault` | where tests make a backend die |
//! | `clock` | reading the clock |
//! | `settings` | every setting, with why its default |
//! | `mutation` | in which way tests want it wrong |
//! | `session` | what a backend keeps from one call to the next |
//! | `shmem` | shared memory |
//! | `pg` | raw PostgreSQL calls: calls and rows, settings, the backend, replication origins, standbys |
//! | `compat` | what PostgreSQL's versions differ in |
//! | `error` | every error and its SQLSTATE; the only place that raises |
//!
//! `unsafe` is in `shmem`, `pg` and `compat`, and nowhere else.

mod functions;
mod room;
mod mutant;
mod server;
mod fault;
mod clock;
mod settings;
#[cfg(feature = "pg_test")]
mod mutation;
mod session;
#[allow(unsafe_code)]
mod shmem;
#[allow(unsafe_code)]
mod pg;
#[allow(unsafe_code)]
mod compat;
mod error;

pgrx::pg_module_magic!(name, version);
pgrx::extension_sql_file!("../sql/takeover/before.sql", name = "before", bootstrap);
pgrx::extension_sql_file!("../sql/idgen.sql", name = "idgen");
pgrx::extension_sql_file!("../sql/takeover/after.sql", name = "after", finalize);

/// Called by PostgreSQL when it loads the library: in the postmaster where
/// `shared_preload_libraries` names it, otherwise in the first backend that calls a function.
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    settings::define();
    if pg::backend::preloading() {
        shmem::install_hooks();
        pg::standbys::look_up_release();
        pg::backend::watch_transactions(session::transaction_ended);
        if pg::backend::in_postmaster() {
            log_problems();
        }
    }
}

/// Writes to the log what keeps ids from being minted. The server starts all the same: a database must not be
/// kept down by a clock. Without room for the mark PostgreSQL may end it in a moment, so that is said now.
fn log_problems() {
    let origins = room::saved_origins();
    for problem in room::check(origins).err().into_iter().chain(server::problem(origins.mark)) {
        problem.log(pgrx::PgLogLevel::WARNING);
    }
}

#[cfg(any(test, feature = "pg_test"))]
mod pg_tests;

/// What pgrx-tests asks of an extension.
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
