//! `sidle setup`: the release. The repository is read before anything is written, so that a host that cannot take the release stays as it is.

use super::{Setup, Step};
use crate::acquire::Acquired;
use crate::cli::Context;
use crate::cli::host::{install_by, notices, preview_by};
use crate::cli::output::Output;
use crate::cli::wanted::Wanted;
use crate::digest::Digest;
use crate::failure::Report;
use crate::fetch::{Fetcher, Notice};
use crate::os::place::Place;
use crate::store::collect::Effect;
use crate::trust_store::TrustStoreError;
use crate::version::Release;

/// The version of the root that a new host fetches: later roots are found from it.
const FIRST_ROOT: u64 = 1;

impl Setup<'_> {
    /// The repository's first root, if it has the fingerprint; None: it is pinned already. The network is not trusted, the fingerprint is.
    pub(super) fn first_root(&self, is_pinned: bool) -> Result<Option<Vec<u8>>, Report> {
        if is_pinned {
            return Ok(None);
        }
        let context = self.quiet();
        let notices = notices(&context);
        let root = self.fetcher(Effect::DryRun, &notices)?.root(FIRST_ROOT, &|_| true)?;
        let found = Digest::of(&root);
        if found != self.fingerprint {
            let expected = self.fingerprint;
            let report = Report::from(TrustStoreError::Fingerprint { expected, found });
            return Err(report.because(format!("it came from {}", self.location)));
        }
        Ok(Some(root))
    }

    /// The release that would be installed. Refuses a host that cannot take it; writes nothing.
    pub(super) fn preview(&self, root: Option<&[u8]>) -> Result<Acquired, Report> {
        // The install prints the same warnings again.
        let quiet = self.quiet();
        let context = if self.effect == Effect::Apply { &quiet } else { self.context };
        let notices = notices(context);
        let mut fetcher = self.fetcher(Effect::DryRun, &notices)?;
        preview_by(context, &mut fetcher, &self.wanted(), root)
    }

    /// Installs the release. `preview`: what a dry run found already.
    pub(super) fn install(&mut self, preview: Option<Acquired>) -> Result<Acquired, Report> {
        let acquired = if let Some(acquired) = preview.filter(|_| self.effect == Effect::DryRun) {
            acquired
        } else {
            let notices = notices(self.context);
            let mut fetcher = self.fetcher(self.effect, &notices)?;
            install_by(self.context, &mut fetcher, &self.wanted(), self.effect)?
        };
        let what = format!("{} {}", acquired.installed.package, acquired.installed.release);
        if acquired.installed.fresh {
            self.step(Step::Install, "installed", "would install", &what);
        } else {
            self.note(Step::Install, format!("{what} is installed already"), false);
        }
        Ok(acquired)
    }

    /// The release, if it is on this host; None: a dry run that would install it.
    pub(super) fn present(&self, installed: &Acquired) -> Option<Release> {
        let is_present = self.effect == Effect::Apply || !installed.installed.fresh;
        is_present.then(|| installed.installed.release.clone())
    }

    fn wanted(&self) -> Wanted {
        Wanted { package: self.arguments.package.clone(), release: self.arguments.release.clone() }
    }

    fn fetcher<'t>(&self, effect: Effect, tell: &'t dyn Fn(&Notice)) -> Result<Fetcher<'t>, Report> {
        let cache = Place::open_or_create(&self.context.layout.cache(), 0o700, effect)?;
        Ok(Fetcher::new(&self.repository()?, &cache, tell)?)
    }

    fn quiet(&self) -> Context {
        let output = Output::new(self.context.output.is_json(), true, self.effect);
        Context { layout: self.context.layout.clone(), output, effect: self.effect }
    }
}
