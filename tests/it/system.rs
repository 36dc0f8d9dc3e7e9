//! What needs root, or programs out of Debian's packages, or a minute of the whole machine.

mod bundle;
mod care;
mod collect;
mod differential;
mod doctor;
mod durability;
mod faults;
mod fetch_access;
mod fetch_compressed;
mod fetch_payload;
mod formats;
mod machine;
mod messages;
mod mirror;
mod online;
mod overlap;
mod place;
mod power;
mod python_tuf;
mod readers;
mod repair;
mod repository;
mod shim;
mod signer;
mod stranger;
mod survival;
