//! Shares work among threads and takes the results in order, with a bounded number waiting.

use crate::os::thread::helper;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Most threads used. More don't help: the disk and the one consumer are the limit.
pub const THREADS_MAXIMUM: usize = 32;

struct State<T, E> {
    next: usize,
    taken: usize,
    results: BTreeMap<usize, Result<T, E>>,
    stopped: bool,
}

struct Shared<T, E> {
    state: Mutex<State<T, E>>,
    changed: Condvar,
}

impl<T, E> Shared<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        // The state is never half changed; the scope passes a panic on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, State<T, E>>) -> MutexGuard<'a, State<T, E>> {
        self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Ends the other threads' waiting when its thread panics.
struct StopAtEnd<'a, T, E>(&'a Shared<T, E>);

impl<T, E> Drop for StopAtEnd<'_, T, E> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Runs `work(0..jobs)` on `threads` threads and calls `take` with the results in order, on the calling thread (which works alone if the
/// host gives no threads). The first error in that order ends it: the same input fails in the same way.
pub fn ordered<T: Send, E: Send>(
    threads: usize,
    jobs: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.clamp(1, THREADS_MAXIMUM);
    let window = 2 * threads;
    let state = State { next: 0, taken: 0, results: BTreeMap::new(), stopped: false };
    let shared = Shared { state: Mutex::new(state), changed: Condvar::new() };
    thread::scope(|scope| {
        let workers = (0..threads.min(jobs)).filter_map(|_| helper(scope, || run(&shared, jobs, window, &work)));
        if workers.count() == 0 {
            return (0..jobs).try_for_each(|job| take(job, work(job)?));
        }
        let _ends = StopAtEnd(&shared);
        let result = (0..jobs).try_for_each(|job| {
            let mut state = shared.lock();
            let result = loop {
                if let Some(result) = state.results.remove(&job) {
                    break result;
                }
                if state.stopped {
                    // A worker panicked; the scope passes the panic on.
                    return Ok(());
                }
                state = shared.wait(state);
            };
            state.taken = job + 1;
            drop(state);
            shared.changed.notify_all();
            take(job, result?)
        });
        shared.stop();
        result
    })
}

fn run<T, E>(shared: &Shared<T, E>, jobs: usize, window: usize, work: &impl Fn(usize) -> Result<T, E>) {
    let _ends = StopAtEnd(shared);
    loop {
        let mut state = shared.lock();
        while !state.stopped && state.next < jobs && state.next >= state.taken + window {
            state = shared.wait(state);
        }
        if state.stopped || state.next >= jobs {
            return;
        }
        let job = state.next;
        state.next += 1;
        drop(state);
        let result = work(job);
        shared.lock().results.insert(job, result);
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_the_first_error_wins() {
        let mut seen = Vec::new();
        let work = |job: usize| if job >= 50 { Err(job) } else { Ok(job * 2) };
        let result = ordered(4, 100, work, |job, value| {
            assert_eq!(value, job * 2);
            seen.push(job);
            Ok(())
        });
        assert_eq!(result, Err(50));
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
        assert_eq!(ordered(4, 0, Ok::<usize, ()>, |_, _| Ok(())), Ok(()));
        assert_eq!(ordered(0, 3, Ok, |job, _| Err(job)), Err(0));
    }

    #[test]
    #[should_panic(expected = "scoped thread panicked")]
    fn a_panic_ends_it() {
        let _ = ordered(2, 10, |job| if job == 3 { panic!("on purpose") } else { Ok::<_, ()>(job) }, |_, _| Ok(()));
    }
}
