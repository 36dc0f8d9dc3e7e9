//! Switching an instance from one release to another, and back: the pure machine, what is journalled of it, and its driver.
//!
//! ```text
//! overlap checking → rehearsing → starting → proving → handing → probation → flipping → retiring → committed
//! back                            └──────────── returning → retreating → rolled-back
//! idle    checking → rehearsing → waiting ⇄ freezing → stopping → starting → proving ⇄ probation → flipping → committed
//! back                                                  └──────── retreating → restarting → reproving → rolled-back
//!                                                                      └──────── stranded ────────┘
//! before  scheduled → checking, where a window or a splay is waited for
//! out     refused, cancelled, expired (nothing was stopped); abandoned (a person gave a stranded switch up)
//! ```
//!
//! In `overlap` the old process serves until `handing`, is the safety net on `probation`, and goes in `retiring`; if it is lost before, the
//! rest goes on as in `idle`.
//!
//! - [`machine`] is the table: phase × outcome → phase. It knows no time and no file. [`phase`] says what each phase is.
//! - [`record`] is one switch: what was asked for, how far it is, what went wrong, how long nobody was there.
//! - [`story`] is what happened in it, step by step, and part of the record.
//! - [`limits`] says how long a phase may last.
//! - [`journal`] is what an instance remembers: the live switch, the proven release (what `current` names) and the one before.
//! - [`history`] is one line for each switch that ended, [`verdicts`] what is held against releases.
//! - [`hold`] is a person's word that an instance stays as it is, [`windows`] when switches may begin, [`schedule`] when one does.
//! - [`grounds`] is what of the host each proven release stood on, [`rehearsed`] what came of a rehearsal after that had changed.
//! - [`snapshot`] is what a configuration directory was before a trial, [`configuration`] when it is put back.
//! - [`drive`] is the driver, [`acts`] what it does, [`proving`] what a new process is measured by, [`leaving`] how the old one is closed and ended;
//!   [`processes`], [`running`] and [`ends`] are the agent's processes, [`finishing`] old ones that belong to no switch any more and have jobs left,
//!   [`rehearse`] a rehearsal, [`rehearsing`] when there is one, [`preparing`] what it may lead to: that extras are laid over the new release
//!   ([`rebuild`]).
//! - [`telling`] logs what changes in the journal, and which processes end.
//! - [`roles`] derives from the journal who may take jobs, [`gatekeeper`] tells the processes.
//!
//! # What the driver does
//!
//! ```text
//! at start:  journal = journal.resumed(boot id, alive, now); write it; make `current` name journal.proven
//! while journal.live is a switch:
//!     outcome = perform(switch.phase.act())                       idempotent; the phase is on disk already
//!     outcome = switch.in_time(outcome, waited, now, limits)      waited: monotonic, since the phase was entered or resumed
//!     next    = journal.advanced(&outcome, now)
//!     if next != journal: write it, then believe it
//! ```
//!
//! A cancellation is an outcome that comes from outside, at any time between two acts.
//!
//! # The commit
//!
//! It is one atomic write of the journal: the one that enters `Flipping` and with it sets `proven` to the new release and `previous`
//! to the old one. The link follows (`Act::Flip`, as often as it takes) and never leads: `current` names `proven`, except during
//! `Flipping`, when it may still name `previous`. Either has passed a probation on this host, so a boot at any instant, even one
//! that reads the link alone, starts a release that worked (promise 3). The other order, link first, would let a crash leave a link that
//! the journal has no word for.

pub mod driver;
pub mod gate;
pub mod journal;
pub mod machine;
pub mod process;
pub mod rehearsal;
pub mod schedule;

pub use journal::history::{Entry, History};
pub use journal::record::{Cause, Failure, Switch};
pub use journal::request::{Adopted, Purpose, Request};
pub use journal::story::{Ending, Story, StoryStep};
pub use journal::{Journal, JournalError, NewSwitch, RequestError};
pub use machine::limits::Limits;
pub use machine::phase::Phase;
pub use machine::{Act, Former, Mode, Outcome, Side};

crate::reports!(driver::error::DriveError, journal::files::FilesError, JournalError, RequestError);
