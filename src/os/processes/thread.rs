//! Helper threads: a host without free threads (`EAGAIN`, `pthread_create(3)`) only makes the work slower.

use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a helper thread for `work`; None without a free thread.
pub fn helper<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, work).ok()
}
