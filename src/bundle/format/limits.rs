//! The limits of the formats. Each names the accident or attack it stops; all are far above what a real agent needs.

/// One mebibyte.
const MIB: u64 = 1 << 20;

/// Files, directories and links of one release (Salt has 15,500). Stops a manifest that exhausts the host's inodes or memory.
pub const ENTRIES_MAXIMUM: usize = 50_000;

/// Frames of one payload (Salt has about 40). Stops a payload of a million one-byte frames, which costs more time than its bytes tell.
pub const FRAMES_MAXIMUM: usize = 16_384;

/// Tar bytes that the packer puts into one frame. Small enough for threads to share the work and for a patch release to skip most of it,
/// large enough to compress well (62.6 MB instead of 57.6 MB for Salt).
pub const FRAME_CONTENT_TARGET_BYTES: u64 = 8 * MIB;

/// Tar bytes in one frame that a reader accepts, as the packer makes it. Stops a frame that decompresses into more memory than a small host
/// has.
pub const FRAME_CONTENT_MAXIMUM_BYTES: u64 = FRAME_CONTENT_TARGET_BYTES;

/// Compressed bytes of one frame that a reader accepts: incompressible content and zstd's overhead. Stops an endless download into memory.
pub const FRAME_LENGTH_MAXIMUM_BYTES: u64 = FRAME_CONTENT_MAXIMUM_BYTES + MIB / 8;

/// Bytes of the frames in memory, contents included: an install stays below 64 MB beside manifest and metadata. Stops a host with many
/// cores from unpacking as many frames.
pub const FRAMES_MEMORY_BYTES: u64 = 32 * MIB;

/// Generations of one payload; the packer merges the oldest. Stops releases from falling apart into tiny frames over the years.
pub const GENERATIONS_MAXIMUM: usize = 16;

/// Bytes of one payload, or of one file in it: the limit of USTAR's size field.
pub const PAYLOAD_MAXIMUM_BYTES: u64 = 0o77_777_777_777;

/// Bytes of all files of one release. Stops sums from overflowing, and releases that no host should accept.
pub const CONTENT_MAXIMUM_BYTES: u64 = 1 << 36;

/// Bytes of a manifest's text (Salt's has 3.1 MB). Stops a small file that decompresses into all of the host's memory.
pub const MANIFEST_MAXIMUM_BYTES: u64 = 10 * MIB;

/// Bytes of a compressed manifest. Stops a large one before the decompressor.
pub const MANIFEST_COMPRESSED_MAXIMUM_BYTES: u64 = 4 * MIB;

/// Bytes of one path. Stops names that no tool can open (`PATH_MAX` is 4096, and the store's own path comes before it).
pub const PATH_MAXIMUM_BYTES: usize = 1024;

/// Bytes of one path component: the limit of file systems.
pub const COMPONENT_MAXIMUM_BYTES: usize = 255;

/// Components of one path. Stops trees that a recursive walk can't follow; the same depth at which `os::walk` stops.
pub const DEPTH_MAXIMUM: usize = 64;

/// Texts in one list or map of a manifest or recipe: commands, libraries, words of a command line, variables. Stops absurd listings.
pub const LIST_MAXIMUM: usize = 1024;

/// Bytes of one such text. Stops a command line that the kernel refuses (`MAX_ARG_STRLEN` is 128 KiB).
pub const TEXT_MAXIMUM_BYTES: usize = 4096;

/// Problems reported at once. Enough to repair a tree in one go; a hostile manifest can't fill the terminal.
pub const PROBLEMS_MAXIMUM: usize = 50;

/// Releases in one bundle file. Stops a bundle whose head alone fills the memory.
pub const BUNDLE_RELEASES_MAXIMUM: usize = 64;

/// Metadata members of one bundle file: every root from 1 on, and the roles. Stops endless chains of roots.
pub const BUNDLE_METADATA_MAXIMUM: usize = 1024;

/// Bytes of one root file. Stops an endless or huge root from filling memory before a signature is looked at.
pub const ROOT_MAXIMUM_BYTES: u64 = MIB / 2;

/// Bytes of a timestamp file. Nothing announces its size, so this alone stops endless data.
pub const TIMESTAMP_MAXIMUM_BYTES: u64 = 16 << 10;

/// Bytes of a snapshot file. The timestamp need not announce its size (it may be signed by a stolen online key).
pub const SNAPSHOT_MAXIMUM_BYTES: u64 = 2 * MIB;

/// Bytes of a targets file, the top-level one or a delegated one: some 4,000 releases. Stops a stolen online key from filling memory.
pub const TARGETS_MAXIMUM_BYTES: u64 = 2 * MIB;

/// Bytes of all metadata of one bundle file: every root, and each role at its largest. Stops many small members from filling memory.
pub const BUNDLE_METADATA_MAXIMUM_BYTES: u64 = 6 * MIB;

/// Bytes of the hint, of SHA256SUMS and of its signature. They have a few lines.
pub const NOTE_MAXIMUM_BYTES: u64 = 64 << 10;

/// Bytes of all members before the first payload: twenty releases of Salt. They are held in memory until they are verified.
pub const BUNDLE_HEAD_MAXIMUM_BYTES: u64 = 16 * MIB;

/// The usual block size of a file system, to estimate space.
pub const BLOCK_BYTES: u64 = 4096;
