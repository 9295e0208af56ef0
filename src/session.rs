//! What a backend keeps from one call to the next.

use idgen_core::mint::{Kept, Session};

use crate::pg::backend::Local;
use crate::shmem;

/// This backend's. It is empty at fork.
pub static SESSION: Local<Session> = Local::new(Session::new(Kept::NOTHING));

/// Forgets the lease: the next call asks its shard.
pub fn drop_lease() {
    SESSION.drop_lease();
}

/// The ids of this transaction are settled: to be called when its rows are visible to others, or gone.
pub fn transaction_ended() {
    if let Ok(shared) = shmem::shared() {
        shared.clear_start();
    }
    SESSION.transaction_ended();
}
