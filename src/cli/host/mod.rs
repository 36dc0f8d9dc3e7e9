//! The verbs for a host's releases: install, list, verify, collect, run.

mod collect;
mod install;
pub mod list;
mod marks;
mod repair;
mod repository;
mod run;
mod scrub;
mod tryout;
mod verify;

pub use collect::{CollectArguments, RemoveArguments, collect, remove};
pub use install::{InstallArguments, PlaceArguments, Source, from_file, install, unpacked_elsewhere};
pub use list::{ListArguments, list};
pub use marks::{instances, marks};
pub use repair::{RepairArguments, repair};
pub use repository::{
    FetchArguments, install as install_from_repository, install_by, notices, open as open_repository, preview_by,
    refuse_talk_with_people,
};
pub use run::{RunArguments, run};
#[cfg(feature = "test-hooks")]
pub use run::{TestFlipArguments, test_flip};
pub use scrub::{ScrubArguments, scrub};
pub use tryout::{TryArguments, try_release};
pub use verify::{VerifyArguments, verify};
