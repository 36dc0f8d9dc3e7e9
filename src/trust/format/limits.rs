//! The limits of trust: everything that is read before it is trusted is bounded, and each bound names the attack it stops.

/// Largest root file in bytes. Stops an endless or huge root from filling memory before a signature is looked at.
pub const ROOT_BYTES_MAXIMUM: usize = 512 * 1024;
/// Largest timestamp file in bytes. Nothing announces its size, so this alone stops endless data.
pub const TIMESTAMP_BYTES_MAXIMUM: usize = 16 * 1024;
/// Largest snapshot file in bytes. The timestamp need not announce its size (it may be signed by a stolen online key).
pub const SNAPSHOT_BYTES_MAXIMUM: usize = 2 * 1024 * 1024;
/// Largest targets file in bytes: some 4,000 releases. Stops a stolen online key from filling memory.
pub const TARGETS_BYTES_MAXIMUM: usize = 2 * 1024 * 1024;
/// Most root files that are followed in one go. Stops an endless chain of roots (TUF §5.3.3); every further run goes on from there.
pub const ROOT_ROTATIONS_MAXIMUM: u64 = 256;
/// Most signatures on one file. Each costs a curve operation: stops a small file from costing minutes.
pub const SIGNATURES_MAXIMUM: usize = 64;
/// Longest signature in bytes: RSA with 8192 bits. Stops text that is no signature before it is decoded.
pub const SIGNATURE_BYTES_MAXIMUM: usize = 1_024;
/// Most keys in one file. Bounds what a root or a delegation makes every later check search.
pub const KEYS_MAXIMUM: usize = 256;
/// Most metadata files that a snapshot lists. Bounds the rollback comparison.
pub const SNAPSHOT_FILES_MAXIMUM: usize = 16_384;
/// Most targets in one role. Bounds memory, which parsed entries take several times more of than their text.
pub const TARGETS_MAXIMUM: usize = 8_192;
/// Most roles that one role delegates to. Bounds the search for a target (TUF §5.6.7).
pub const DELEGATED_ROLES_MAXIMUM: usize = 1_024;
/// Most roles that the search for one target looks at. Stops a graph of delegations that never ends (TUF §5.6.7.1).
pub const DELEGATIONS_FOLLOWED_MAXIMUM: usize = 128;
/// Longest chain of delegations that the search for one target goes down. A role that needs more is a mistake, or an attack on memory.
pub const DELEGATION_DEPTH_MAXIMUM: usize = 16;
/// Longest target name in bytes: what fits a bundle's headers. Stops a name that no file system takes.
pub const TARGET_NAME_BYTES_MAXIMUM: usize = 255;
/// Longest keyid or role name in bytes. They come back in messages.
pub const NAME_BYTES_MAXIMUM: usize = 255;
/// Largest length that a target may announce: 1 TiB. Keeps sums of lengths far from overflow.
pub const TARGET_BYTES_MAXIMUM: u64 = 1 << 40;
