//! The verbs that only look: status, doctor, and what they gather.

pub mod doctor;
pub mod exposition;
pub mod host_change;
pub mod job;
pub mod metrics;
pub mod missed;
pub mod status;
pub mod trees;
pub mod uses;
