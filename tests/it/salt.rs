//! Real Salt: trees from Python packages, real masters and minions. `first` is what `scripts/test` runs of it.

mod adopt;
mod caller;
mod edges;
mod first;
pub mod first_minion;
mod formula;
mod handover;
mod layer;
mod lazy;
mod long_term;
mod minion;
mod options;
mod packages;
mod push;
mod quickstart;
mod rehearsal;
mod salt_ssh;
mod saltext;
mod sources;
mod stream;
mod tryout;
mod upstream;
mod uses;
