//! Switching an instance from one release to another, and back: the pure machine, its journal, and its driver.
//!
//! ```text
//! overlap checking → rehearsing → starting → proving → handing → probation → flipping → finishing-old → committed
//! back                            └──────────── draining-new → stopping-new → rolled-back
//! idle    checking → rehearsing → waiting ⇄ freezing → stopping → starting → proving ⇄ probation → flipping → committed
//! back                                                  └──────── stopping-new → starting-old → proving-old → rolled-back
//!                                                                      └──────── stranded ────────┘
//! before  scheduled → checking, if the switch waits for a window or a splay
//! out     refused, cancelled, expired (nothing was stopped); abandoned (a person gave a stranded switch up)
//! ```
//!
//! In `overlap` the old process serves until `handing`, can serve again during `probation`, and ends in `finishing-old`; if it is lost earlier, the
//! switch continues as in `idle`.
//!
//! The folders, each naming only folders above it in this list:
//!
//! - [`machine`]: the table from phase and outcome to the next phase ([`machine::phase`]: one row per phase; [`machine::limits`]: the time
//!   limits). It knows no time and no file.
//! - [`schedule`]: maintenance windows, and when a switch begins.
//! - [`journal`]: the saved files of an instance. The journal itself has the live switch ([`journal::record`], with its [`journal::story`]), the
//!   proven release and the previous release. Beside it: [`journal::history`], [`journal::verdicts`] on releases, the [`journal::hold`] of a
//!   person, [`journal::host_fingerprints`] of proven releases, and the results of
//!   [`journal::repeated`] rehearsals.
//! - [`gate`]: derives the roles of the processes from the journal, writes them for the guards, reads the guards' reports.
//! - [`process`]: the processes of the agent: started, found again, frozen, ended; an adopted process; old processes that finish their jobs.
//! - [`rehearsal`]: one rehearsal, and the rebuild of extras for a new release.
//! - [`driver`]: performs the acts. [`driver::acts`] dispatches them; the other files are for the proof, the leave of a process, the configuration,
//!   the rehearsals, the requests of people, and the log.
//!
//! # What the driver does
//!
//! ```text
//! at start:  journal = journal.resumed(boot id, alive, now); write it; make `current` name journal.proven
//! while journal.live is a switch:
//!     outcome = perform(switch.phase.act())                       idempotent; the phase is on disk already
//!     outcome = switch.in_time(outcome, waited, now, limits)      waited: monotonic, since the phase was entered or resumed
//!     next    = journal.advanced(&outcome, now)
//!     if next != journal: write it, then act on it
//! ```
//!
//! A cancellation is an outcome that a person causes, at any time between two acts.
//!
//! # The commit
//!
//! The commit is one atomic write of the journal: it enters `Flipping`, sets `proven` to the new release and `previous` to the old release.
//! The link follows (`Act::Flip`, repeated until it succeeds): `current` names `proven`, except during `Flipping`, when it may still name
//! `previous`. Both releases have passed a probation on this host, so a boot at any instant, even with the link alone, starts a release that
//! worked (promise 3). With the link first, a crash could leave a link that the journal does not know.

pub mod driver;
pub mod gate;
pub mod journal;
pub mod machine;
pub mod peers;
pub mod process;
pub mod rehearsal;
pub mod schedule;
pub mod uses;

pub use journal::head::{Cause, Failure};
pub use journal::history::{Entry, History};
pub use journal::record::Switch;
pub use journal::request::{Adopted, Purpose, Request};
pub use journal::story::{Ending, Story, StoryStep};
pub use journal::{Journal, JournalError, NewSwitch, RequestError};
pub use machine::limits::Limits;
pub use machine::phase::Phase;
pub use machine::{Act, Former, Mode, Outcome, Side};

crate::reports!(driver::error::DriveError, journal::files::FilesError, JournalError, RequestError);
