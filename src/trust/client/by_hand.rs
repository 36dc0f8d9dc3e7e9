//! Verifies metadata carried by hand (in a bundle file) against the host's floor: newer metadata is adopted, older ignored; releases are
//! looked up in the newest targets.

use crate::trust::error::TrustError;
use crate::trust::floor::{DelegatedFiles, Expiry, Floor, MetadataFiles, Warning};
use crate::trust::metadata::{Root, Signed};
use crate::trust::refresh::Refresh;
use crate::trust::request::Answer;
use crate::trust::role::Role;
use crate::trust::trusted::TrustedTargets;
use crate::trust::verify::{Offered, Workflow};
use jiff::Timestamp as Time;

/// The result of verifying carried metadata.
#[derive(Debug)]
pub struct Verification {
    /// The new floor. Store it even when `targets` is an error.
    pub floor: Floor,
    /// The newly adopted files, oldest authority first. If empty, the floor needs storing only when `floor.last_seen` grew.
    pub adopted: Vec<String>,
    /// Warnings for the operator.
    pub warnings: Vec<Warning>,
    /// The targets for lookups.
    pub targets: Result<TrustedTargets, TrustError>,
}

/// Verifies `files` against `floor` at the time `now`.
pub fn verify(floor: &Floor, files: &MetadataFiles, now: Time, expiry: Expiry) -> Verification {
    let mut refresh = match Refresh::start(floor, now, expiry) {
        Ok(refresh) => refresh,
        Err(error) => {
            return Verification {
                floor: floor.clone(),
                adopted: Vec::new(),
                warnings: Vec::new(),
                targets: Err(error),
            };
        }
    };
    let outcome = drive(&mut refresh, &floor.delegated, files);
    let new = outcome.as_ref().map_or_else(|_| refresh.floor(), |targets| targets.authority().clone());
    let mut warnings = refresh.warnings().to_vec();
    if let (Ok(_), Some(Offered::Older { trusted, offered })) = (&outcome, refresh.offered()) {
        warnings.push(Warning::OlderIgnored { trusted, offered });
    }
    Verification { adopted: adopted(floor, &new), floor: new, warnings, targets: outcome }
}

fn drive(refresh: &mut Refresh, kept: &DelegatedFiles, files: &MetadataFiles) -> Result<TrustedTargets, TrustError> {
    same_repository(refresh.workflow(), files)?;
    while let Some(request) = refresh.request() {
        let Some(bytes) = files.get(&request.file) else {
            if request.role == Role::Root.as_str() {
                no_later_root(refresh.workflow(), files)?;
            }
            match refresh.answer(Answer::NotFound) {
                // An export may lack the role that lists a target: the lookup then says "unknown".
                Err(TrustError::Missing { .. }) if request.role == Role::Targets.as_str() => break,
                answered => answered?,
            }
            continue;
        };
        refresh.answer(Answer::File(bytes))?;
    }
    let older_offered = matches!(refresh.offered(), Some(Offered::Older { .. }));
    Ok(TrustedTargets::new(refresh.workflow(), kept, files, older_offered))
}

fn same_repository(workflow: &Workflow, files: &MetadataFiles) -> Result<(), TrustError> {
    let version = workflow.root().header.version;
    let file = format!("{version}.root.json");
    let Some(bytes) = files.get(&file) else { return Ok(()) };
    let same = Signed::<Root>::parse(&file, bytes)?.canonical == workflow.root().canonical;
    if same { Ok(()) } else { Err(TrustError::OtherRepository { version }) }
}

fn no_later_root(workflow: &Workflow, files: &MetadataFiles) -> Result<(), TrustError> {
    let trusted = workflow.root().header.version;
    let later = files.keys().filter_map(|name| root_version(name)).filter(|version| *version > trusted).min();
    later.map_or(Ok(()), |offered| Err(TrustError::RootGap { trusted, offered }))
}

/// 3 for `3.root.json`; None for every other name.
pub fn root_version(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".root.json")?;
    let plain = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
    if plain { number.parse().ok() } else { None }
}

fn adopted(old: &Floor, new: &Floor) -> Vec<String> {
    let delegated = new.delegated.iter().filter(|(role, bytes)| old.delegated.get(*role) != Some(*bytes));
    let delegated: Vec<String> = delegated.map(|(role, _)| format!("{role}.json")).collect();
    let old = old.files();
    let is_new = |(role, bytes): &(Role, &[u8])| !old.contains(&(*role, *bytes));
    let top = new.files().into_iter().filter(is_new).map(|(role, _)| role.file());
    top.chain(delegated).collect()
}
