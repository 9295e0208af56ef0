//! **idgen** mints unique, time-sorted 64-bit shard ids inside PostgreSQL.
//!
//! The format of ids is in the crate `idgen-ids`, and the protocol that mints them in `idgen-core`, both without
//! PostgreSQL and without `unsafe`. This crate connects them to PostgreSQL. These are its modules, from the top down;
//! none uses one above it, except that `testing` and the modules that it changes use each other:
//!
//! | module | purpose |
//! |---|---|
//! | `functions` | the SQL entry points, a few lines each; `sql/idgen.sql` declares them |
//! | `state` | what is wrong with this server, and whether it mints; the setting `idgen.state` |
//! | `origin_slots` | whether PostgreSQL has a slot for the mark's origin; the first mark, and its removal |
//! | `minting` | the host in which ids are minted: `host`, or in tests one that may be wrong |
//! | `host` | the host of the core, implemented on PostgreSQL |
//! | `clock` | reading the clock |
//! | `memory` | the shared memory, and whether this session may use it |
//! | `settings` | all settings, with the reasons for their defaults |
//! | `session` | the state that a backend keeps between calls |
//! | `pg` | PostgreSQL behind safe functions: memory, calls, settings, origins, standbys; what its versions differ in |
//! | `error` | all errors and warnings with their SQLSTATEs; the only module that raises them |
//! | `testing` | what only the test build has |
//!
//! Only `pg` contains `unsafe`; the compiler denies it elsewhere.

mod functions;
mod state;
mod origin_slots;
mod minting;
mod host;
mod clock;
mod memory;
mod settings;
mod session;
#[allow(unsafe_code)]
mod pg;
#[expect(clippy::disallowed_methods, reason = "it raises the errors: clippy.toml")]
mod error;
#[cfg(any(test, feature = "pg_test"))]
mod testing;

pgrx::pg_module_magic!(name, version);
pgrx::extension_sql_file!("../sql/takeover/before.sql", name = "before", bootstrap);
pgrx::extension_sql_file!("../sql/idgen.sql", name = "idgen");
pgrx::extension_sql_file!("../sql/takeover/after.sql", name = "after", finalize);

/// Called by PostgreSQL when it loads the library: in the postmaster if `shared_preload_libraries` names it,
/// otherwise in each backend that first calls a function.
///
/// It must not raise an error: PostgreSQL would call it again at the next try, and refuse to define settings twice.
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    pg::setting::without_errors(|| {
        settings::define();
        #[cfg(feature = "pg_test")]
        testing::settings::define();
        state::define();
        pg::setting::reserve_prefix();
    });
    pg::standbys::look_up_release();
    pg::backend::watch_transactions(session::transaction_ended);
    if !pg::backend::preloading() {
        memory::when_allocated(|| log_problems(origin_slots::origins(), true));
        return;
    }
    pg::shmem::install_hooks(settings::list);
    if pg::backend::in_postmaster() {
        log_problems(origin_slots::saved_origins(), false);
    }
}

/// Logs the problems that keep ids from being minted. The server starts nevertheless: a clock must not keep a
/// database down. Without room for the mark, PostgreSQL may end the server in a moment, so that is logged now.
fn log_problems(origins: origin_slots::Origins, in_session: bool) {
    let no_slot = origin_slots::check(origins).err().map(error::Warning::from);
    for warning in no_slot.into_iter().chain(host::check_minting(origins.mark).err()) {
        warning.log(in_session);
    }
}

/// What pgrx-tests requires from an extension.
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
