//! Values only: no process, no network, a second or a few. `scripts/check` runs these with the unit tests.

mod architecture;
mod causes;
mod costs;
mod dependencies;
mod documents;
mod durations;
pub mod machine;
mod programs;
mod rehearsal;
mod suite;
mod supervisor;
