//! sidle: side-by-side, verified, reversible upgrades of the agents that run a fleet.
//!
//! The architecture, floor by floor. A module names only floors below its own (`tests/it/pure/architecture.rs` enforces it):
//!
//! ```text
//! 6  cli (and main)           grammar, printing, exit codes; the register of agents
//! 5  adoption doctor generalize self_upgrade supervise  a package's agent is taken over; checks of a host; an image fit to be cloned; this program as a release; one loop over one enum of events
//! 4  switch run acquire loaded config push   the pure switch machine and its driver; becoming a release; fetching one into the store; settings; hosts over ssh
//! 3  fetch store salt demo command signer trust_store repository   siblings do not import each other
//! 2  bundle trust agent rehearsal   formats, the TUF workflow, the traits
//! 1  os                       files, processes, clocks, sockets
//! 0  name version digest failure layout saved
//! ```
//!
//! A datum's way: a tree is *packed* into a payload and a manifest (`bundle`), *published* in a repository (`repository`, `trust`), exported into
//! one file or *fetched* (`fetch`), *installed* beside what runs (`store`), *switched* to (`switch`, `supervise`), *repaired* where it breaks, and
//! one day *collected* (`store`).

pub mod acquire;
pub mod adoption;
pub mod agent;
pub mod bundle;
pub mod cli;
pub mod command;
pub mod config;
pub mod demo;
pub mod digest;
pub mod doctor;
pub mod failure;
pub mod fetch;
pub mod generalize;
pub mod layout;
pub mod loaded;
pub mod name;
pub mod os;
pub mod push;
pub mod rehearsal;
pub mod repository;
pub mod run;
pub mod salt;
pub mod saved;
pub mod self_upgrade;
pub mod signer;
pub mod store;
pub mod supervise;
pub mod switch;
pub mod trust;
pub mod trust_store;
pub mod version;
