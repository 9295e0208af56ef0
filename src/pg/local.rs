//! Variables of this process.

use std::ops::Deref;

/// A variable of this process, like a static variable in C. A `thread_local` in a library loaded at run time costs
/// a call of `__tls_get_addr` at every use, of which there are several on the way to an id.
pub struct Local<T>(T);

// SAFETY: backends and the postmaster are single-threaded.
unsafe impl<T> Sync for Local<T> {}

impl<T> Local<T> {
    /// A variable with its initial value, which children of the postmaster inherit.
    pub const fn new(value: T) -> Local<T> {
        Local(value)
    }
}

impl<T> Deref for Local<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
