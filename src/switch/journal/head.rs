//! What the journal and the history have of a switch.

use crate::name::{InstanceName, PackageName};
use crate::switch::journal::request::Request;
use crate::switch::journal::story::Story;
use crate::switch::machine::Mode;
use crate::switch::machine::phase::Phase;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The new release did not come up, or did not stay up.
    Release,
    /// The host: damaged files, a process that did not end, an agent that stayed busy.
    Host,
    /// A person cancelled the switch.
    Person,
    /// The supervisor or the host went down during the switch.
    Interruption,
}

/// The failure of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// The phase that failed.
    pub phase: Phase,
    /// Its cause.
    pub cause: Cause,
    /// The phase was over its time limit: what a host is, or a release.
    #[serde(default)]
    pub timed_out: bool,
    /// What happened, for people.
    pub text: String,
}

/// The part of a switch that the history keeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head {
    /// Counts the switches of this instance, from 1.
    pub id: u64,
    /// The instance that is switched.
    pub instance: InstanceName,
    /// Its package.
    pub package: PackageName,
    /// The request; its `to` is the release on trial.
    #[serde(flatten)]
    pub request: Request,
    /// The mode.
    pub mode: Mode,
    /// The release that worked before; None: a first switch.
    pub from: Option<Release>,
    /// The time of the request.
    pub requested_at: Timestamp,
    /// The first failure.
    pub failure: Option<Failure>,
    /// The downtime so far, without the present one.
    pub downtime_milliseconds: u64,
    /// Notes for people: why another mode is used, findings of the rehearsal.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The steps so far; empty in old entries of the history: no longer kept.
    #[serde(default)]
    pub story: Story,
}
