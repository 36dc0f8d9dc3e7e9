//! Where two processes part: what was published before the new process listened, what the old one still does, a new one that hears nothing, and Salt
//! releases that go round the guard. No job is lost or doubled there either.

mod backlog;
mod deaf;
mod leaving;
mod local_user;
mod strangers;

use crate::support::scene::Scene;
use serde_json::Value;

const OLD: &str = "3006.30";
const MIDDLE: &str = "3007.17";
const NEW: &str = "3008.5";

/// The last switch, as history has it, and why it failed.
fn last(scene: &Scene) -> (Value, String) {
    let last = scene.history()[0].clone();
    let why = last["failure"]["text"].as_str().unwrap_or_default().to_owned();
    (last, why)
}
