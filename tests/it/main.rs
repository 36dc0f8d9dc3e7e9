//! The integration tests: one file per promise or floor.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests set the stage by hand, and a panic is how they fail"
)]

mod adopt;
mod architecture;
mod attacks;
mod bench;
mod boot;
mod bundle;
mod by_hand;
mod caller;
mod care;
mod collect;
mod configuration;
mod crash;
mod delegations;
mod demo;
mod differential;
mod doctor;
mod fetch;
mod formats;
mod ground;
mod handover;
mod install;
mod keyring;
mod lazy;
mod logs;
mod machine;
mod messages;
mod mirror;
mod online;
mod overlap;
mod packages;
mod place;
mod python_tuf;
mod quickstart;
mod readers;
mod rebuild;
mod rehearsal;
mod repair;
mod repository;
mod salt;
mod salt_ssh;
mod shim;
mod signer;
mod signing;
mod stream;
mod support;
mod survival;
mod switching;
mod take_up;
mod tamper;
mod will;
mod windows;
