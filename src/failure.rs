//! The classes of failure: what a caller can do about an error. The CLI turns a class into an exit code; nothing below it knows codes.

/// What kind of failure an error is. In the order in which the exit codes apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The command or its input makes no sense.
    Usage,
    /// Another command holds the lock.
    Locked,
    /// Signature, metadata, withdrawn, unpinned, unsafe content.
    NotTrusted,
    /// Bytes are not what was signed.
    Integrity,
    /// Bytes or inodes are missing.
    NoSpace,
    /// Held by a person, or outside its window.
    Held,
    /// Another will stands against this one: a live switch to another release.
    Conflict,
    /// Still busy at its deadline.
    Busy,
    /// The switch came back to the release that worked.
    RolledBack,
    /// The switch is not finished.
    Pending,
    /// Nothing to do.
    NothingToDo,
    /// Everything else.
    Failed,
}
