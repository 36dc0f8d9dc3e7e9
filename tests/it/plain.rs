//! Real files, processes and servers on loopback, with the demonstration agent where one is needed: without root, and without a program
//! that a machine with cargo and python3 may lack. `scripts/test` runs these.

mod agent;
mod archives;
mod attacks;
pub mod bundle;
mod by_hand;
pub mod collect;
mod configuration;
pub mod crash;
mod delegations;
pub mod doctor;
mod documented;
mod dry_run;
pub mod durability;
mod escapes;
pub mod fetch;
pub mod formats;
mod golden;
mod host_change;
mod install;
pub mod location;
mod logs;
mod memory;
pub mod messages;
mod metrics;
pub mod overlap;
mod own_agent;
pub mod readers;
pub mod rebuild;
pub mod self_repair;
mod trust_store;

mod generalize;
mod policy;
mod remedies;
pub mod repair;
pub mod repository;
mod settings;
mod setup;
mod signing;
mod strangers;
pub mod survival;
mod switching;
mod take_up;
pub mod tamper;
mod unhealthy;
mod windows;
