//! What an instance's peers would not take, by what they have said: its guard says where that is kept, else its configuration as it was last loaded.

use crate::layout::Layout;
use crate::name::InstanceName;
use crate::rehearsal::Rehearser;
use crate::switch::gate::gatekeeper::Gatekeeper;
use crate::version::Version;

/// Why the peers would not take a release of this version; empty: nothing is known against it.
pub fn refuse(layout: &Layout, instance: &InstanceName, rehearser: &dyn Rehearser, version: &Version) -> Vec<String> {
    let reports = Gatekeeper::new(layout, instance).reports();
    let options = reports.first().and_then(|report| report.options.as_ref());
    rehearser.peers_refuse(options, &layout.instance(instance), version)
}
