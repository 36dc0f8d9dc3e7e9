//! The addresses of the masters' names. Answers are kept for a while: the supervisor waits for the resolver, which may be the network's only one.

use crate::os::{clock, net};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long an answer counts; a corrected name is found after this time at the latest.
pub const ANSWER_AGE_MAXIMUM: Duration = Duration::from_secs(10);

/// The same before a new process asks the resolver itself: older answers do not help it.
pub const FRESH_AGE_MAXIMUM: Duration = Duration::from_secs(1);

/// An answer, or why there was none, and when that was, since boot.
type Answer = (Duration, Result<Vec<IpAddr>, String>);

/// The answers that still count.
#[derive(Debug, Default)]
pub struct Names {
    answers: RefCell<BTreeMap<String, Answer>>,
    asked: RefCell<u64>,
}

impl Names {
    /// The addresses of a host name, or why there are none, as the resolver said within the last `age`.
    pub fn resolve(&self, host: &str, age: Duration) -> Result<Vec<IpAddr>, String> {
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
            assert_eq!(names.resolve("127.0.0.1", ANSWER_AGE_MAXIMUM).unwrap(), vec![IpAddr::from([127, 0, 0, 1])]);
            assert!(names.resolve("no such name", ANSWER_AGE_MAXIMUM).is_err());
        }
        assert_eq!(names.asked(), 2);
    }
}
