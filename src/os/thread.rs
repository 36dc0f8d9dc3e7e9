//! Threads that help: a host that has none left (`EAGAIN`, `pthread_create(3)`) makes the work slower, and stops nothing.

use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a thread that helps with `work`; None where the host gives none.
pub fn helper<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, work).ok()
}
