//! The state that a backend keeps between calls.

use idgen_core::mint::Session;

use crate::pg::backend::Local;
use crate::shmem;

/// The state of this backend. It is empty at fork.
pub static SESSION: Local<Session> = Local::new(Session::fresh());

/// Forgets the lease, so that the next call visits its shard.
pub fn drop_lease() {
    SESSION.drop_lease();
}

/// Marks the ids of this transaction as settled. Call it when its rows are visible to others, or gone.
pub fn transaction_ended() {
    if let Ok(shared) = shmem::shared() {
        shared.clear_start();
        // A backend that is terminated while its batch waits does not come back to withdraw it.
        if let Some(batch) = shared.own_batch() {
            batch.leave();
        }
    }
    SESSION.transaction_ended();
}
