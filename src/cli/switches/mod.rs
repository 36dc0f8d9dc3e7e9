//! The verbs that switch, and what they print of a switch.

pub mod cancel;
pub mod follow;
pub mod order;
mod order_dry_run;
mod own_release;
pub mod reach;
mod rehearsal_page;
pub mod rehearse;
pub mod rehearsing;
pub mod story;
pub mod switching;
pub mod timing;
pub mod upgrade;
