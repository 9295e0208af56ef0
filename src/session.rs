//! The state that a backend keeps between calls.

use idgen_core::mint::Session;

use crate::pg::local::Local;
use crate::pg::shmem;

/// The state of this backend. It is empty at fork.
pub static SESSION: Local<Session> = Local::new(Session::fresh());

/// Drops the lease, so that the next call goes to the slot of its shard.
pub fn drop_lease() {
    SESSION.drop_lease();
}

/// Marks the ids of this transaction as settled. Call it when its rows are visible to others, or gone.
pub fn transaction_ended() {
    if let Some(own) = shmem::own_state() {
        own.transaction_ended();
    }
    SESSION.transaction_ended();
}
