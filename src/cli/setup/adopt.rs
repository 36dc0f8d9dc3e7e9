//! `sidle setup --adopt`: the packaged agent is taken over.

use super::{Setup, Step};
use crate::acquire::Acquired;
use crate::adoption::record::{Adoption, Stage};
use crate::agent::findings::Findings;
use crate::cli::adopt::{AdoptArguments, take_over};
use crate::cli::{Ended, instance_of};
use crate::failure::{Class, Report};
use crate::store::collect::Effect;

impl Setup<'_> {
    /// Takes the running agent over. Gives the end of a takeover that did not end well.
    pub(super) fn adopt(&mut self, installed: &Acquired) -> Result<Option<Class>, Report> {
        let package = &self.arguments.package;
        let (layout, name) = (&self.context.layout, instance_of(package, None));
        if Adoption::read(layout, &name)?.is_some_and(|adoption| adoption.stage == Stage::Held) {
            self.note(Step::Adopt, format!("{name} is adopted already"), false);
            return Ok(None);
        }
        let Some(release) = self.present(installed) else {
            self.note(Step::Adopt, format!("would take over the running agent of {package}"), true);
            let findings = Findings::without_release();
            self.context.output.step(findings.lines());
            self.adoption = Some(findings);
            return Ok(None);
        };
        if self.effect == Effect::Apply {
            self.start_supervisor(Step::Adopt)?;
        }
        let (mode, dry_run) = (self.arguments.mode, self.effect == Effect::DryRun);
        let mut findings = Findings::default();
        let ended = take_over(&self.within(), &AdoptArguments::to(package, &release, mode, dry_run), &mut findings)?;
        self.adoption = Some(findings);
        match ended {
            Ended::As(class) if class != Class::NothingToDo => return Ok(Some(class)),
            Ended::As(_) | Ended::Well => {}
        }
        self.step(Step::Adopt, "took over", "would take over", &format!("the running agent of {package}"));
        Ok(None)
    }
}
