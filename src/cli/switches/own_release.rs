//! `sidle upgrade sidle`, `sidle rollback sidle`: what they print.

use crate::cli::{Context, Ended};
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::self_upgrade::{self, TakenUp};
use crate::switch::Purpose;
use crate::version::Release;
use serde_json::json;

/// Takes a release of this program up. Exit code 3 if everything runs it already.
pub fn take_up(context: &Context, package: &PackageName, release: &Release, purpose: Purpose) -> Result<Ended, Report> {
    let Context { layout, output, effect } = context;
    let step = |instance: &_| output.step(format!("the supervisor of {instance} runs sidle {release}"));
    let (text, value, ended) = match self_upgrade::take_up(layout, package, release, purpose, *effect, &step)? {
        TakenUp::Already => (
            format!("sidle is {release} already"),
            json!({"package": package, "release": release, "renewed": []}),
            Ended::As(Class::NothingToDo),
        ),
        TakenUp::Would => (
            format!("sidle would become {release}; its supervisors would execute it one after another"),
            json!({"package": package, "release": release, "dry_run": true}),
            Ended::Well,
        ),
        TakenUp::Done { before, renewed } => (
            format!("sidle {release} is current; {} supervisors run it", renewed.len()),
            json!({"package": package, "release": release, "before": before, "renewed": renewed}),
            Ended::Well,
        ),
    };
    output.result(text, value);
    Ok(ended)
}
