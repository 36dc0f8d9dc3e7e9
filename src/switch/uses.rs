//! Finds the count of what an instance uses: its guard says where it is, else its configuration as it was last loaded.

use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::file;
use crate::rehearsal::uses::{Known, LENGTH_MAX, Uses};
use crate::rehearsal::{Rehearsal, Rehearser};
use crate::store::{Store, StoreError};
use crate::switch::gate::gatekeeper::Gatekeeper;
use crate::version::Release;

/// Reads the count. A file that cannot be read is a reason of [`Known::NotCounted`], and never an empty count.
pub fn of(layout: &Layout, instance: &InstanceName, rehearser: &dyn Rehearser) -> Known {
    let reports = Gatekeeper::new(layout, instance).reports();
    let reported = reports.first();
    let options = reported.and_then(|report| report.options.as_ref());
    let Some(path) = rehearser.uses_file(options, &layout.instance(instance)) else {
        return Known::NotCounted("where its guard keeps a count is not known: nothing has run here yet".to_owned());
    };
    let off = || {
        let off = reported.and_then(|report| report.uses.as_ref()?.off.clone());
        off.unwrap_or_else(|| format!("no guard has counted yet: there is no {}", path.display()))
    };
    let cannot = |why: String| Known::NotCounted(format!("cannot read {}: {why}", path.display()));
    match file::read_if_exists(&path, LENGTH_MAX) {
        Ok(None) => Known::NotCounted(off()),
        Ok(Some(bytes)) => Uses::parse(&bytes).map_or_else(cannot, Known::Counted),
        Err(error) => Known::NotCounted(error.to_string()),
    }
}

/// Weighs a rehearsal of `to` by what the instance uses. `from`: the release that works here; its lists tell of the kinds of modules that no rehearsal
/// loads.
pub fn weighed(
    found: Rehearsal,
    store: &Store,
    instance: &InstanceName,
    rehearser: &dyn Rehearser,
    [from, to]: [&Release; 2],
) -> Result<Rehearsal, StoreError> {
    let mut found = found;
    let unloaded = rehearser.listed_only();
    if !unloaded.is_empty() {
        let (trial, former) = (store.manifest(to)?, store.manifest(from)?);
        match rehearser.lost(&trial.offers, &former.offers) {
            Some(lost) => found.lost.extend(lost.into_iter().filter(|lost| unloaded.contains(&lost.kind.as_str()))),
            None => found.notes.push(format!(
                "modules of the kinds {} were not compared: a manifest does not list them (pack both releases with this sidle)",
                unloaded.join(", ")
            )),
        }
    }
    if found.lost.is_empty() {
        return Ok(found);
    }
    let known = of(store.layout(), instance, rehearser);
    Ok(found.by_use(&known, rehearser.successors()))
}
