//! What the resolver says of the masters' names, not asked at every look: it may be the network's only one, and it answers while the supervisor waits.

use crate::os::{clock, net};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long an answer counts. A name that has just been mended is found within it.
const ANSWER_AGE_MAXIMUM: Duration = Duration::from_secs(10);

/// The same where a new process is about to ask for itself: what is remembered helps it nothing.
const FRESH_AGE_MAXIMUM: Duration = Duration::from_secs(1);

/// An answer, or why there was none, and when that was, since boot.
type Answer = (Duration, Result<Vec<IpAddr>, String>);

/// The answers that still count.
#[derive(Debug, Default)]
pub struct Names {
    answers: RefCell<BTreeMap<String, Answer>>,
    asked: RefCell<u64>,
}

impl Names {
    /// The addresses of a host name, or why there are none.
    pub fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        self.resolve_within(host, ANSWER_AGE_MAXIMUM)
    }

    /// The same as the resolver says it now.
    pub fn resolve_afresh(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        self.resolve_within(host, FRESH_AGE_MAXIMUM)
    }

    fn resolve_within(&self, host: &str, age: Duration) -> Result<Vec<IpAddr>, String> {
        let now = clock::since_boot();
        if let Some((at, answer)) = self.answers.borrow().get(host) {
            if now.saturating_sub(*at) < age {
                return answer.clone();
            }
        }
        *self.asked.borrow_mut() += 1;
        let answer = net::resolve(host).map_err(|error| error.to_string());
        self.answers.borrow_mut().insert(host.to_owned(), (clock::since_boot(), answer.clone()));
        answer
    }

    /// How often the resolver was asked.
    pub fn asked(&self) -> u64 {
        *self.asked.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolver_is_asked_once_for_many_looks() {
        let names = Names::default();
        for _ in 0..5 {
            assert_eq!(names.resolve("127.0.0.1").unwrap(), vec![IpAddr::from([127, 0, 0, 1])]);
            assert!(names.resolve("no such name").is_err());
        }
        assert_eq!(names.asked(), 2);
    }
}
