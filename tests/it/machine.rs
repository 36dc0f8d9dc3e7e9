//! The switch machine under every schedule.
