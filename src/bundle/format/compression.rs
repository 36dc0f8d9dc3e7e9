//! zstd, one frame at a time: always with a content size, never with bytes around the frame.

use std::fmt;
use std::io;
use zstd::zstd_safe::{CParameter, DParameter};

/// zstd level of patches: made once per release, for every host.
const PATCH_LEVEL: i32 = 19;

/// Why bytes are not one valid zstd frame.
#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    /// zstd refused; its words.
    #[error("cannot run zstd on it: {0}")]
    Zstd(io::Error),
    /// No frame at the start, or a frame that is cut off or skippable.
    #[error("cannot decompress it: it is not a complete zstd frame")]
    NotAFrame,
    /// Bytes follow the frame.
    #[error("cannot decompress it: bytes follow the zstd frame")]
    Trailing,
    /// The frame does not say how many bytes it holds, or another number than expected.
    #[error("cannot decompress it: the zstd frame {}, expected {expected}", holds(*.found))]
    ContentSize {
        /// The size in the frame.
        found: Option<u64>,
        /// The right size.
        expected: Expected,
    },
}

fn holds(found: Option<u64>) -> String {
    found.map_or_else(|| "has no content size".to_owned(), |found| format!("holds {found} bytes"))
}

/// The allowed size of a frame's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Exactly this many bytes.
    Exactly(u64),
    /// At most this many bytes.
    AtMost(u64),
}

impl fmt::Display for Expected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(bytes) => write!(formatter, "{bytes}"),
            Self::AtMost(bytes) => write!(formatter, "at most {bytes}"),
        }
    }
}

impl Expected {
    fn admits(self, size: u64) -> bool {
        match self {
            Self::Exactly(bytes) => size == bytes,
            Self::AtMost(bytes) => size <= bytes,
        }
    }
}

/// One zstd frame of `content`. The same content and level give the same bytes on every machine: a context of its own, one thread, every
/// parameter by level. The content size is for readers; zstd's checksum (4 bytes) lets `zstd -t` and `tar --zstd` notice damage.
pub fn compress(content: &[u8], level: i32) -> Result<Vec<u8>, CompressionError> {
    let mut compressor = zstd::bulk::Compressor::new(level).map_err(CompressionError::Zstd)?;
    let parameters = [CParameter::ContentSizeFlag(true), CParameter::ChecksumFlag(true), CParameter::DictIdFlag(false)];
    for parameter in parameters {
        compressor.set_parameter(parameter).map_err(CompressionError::Zstd)?;
    }
    compressor.compress(content).map_err(CompressionError::Zstd)
}

/// The content of `bytes`, which must be exactly one zstd frame of `expected` size. The size is compared before memory is allocated.
pub fn decompress(bytes: &[u8], expected: Expected) -> Result<Vec<u8>, CompressionError> {
    let capacity = one_frame(bytes, expected)?;
    let content = zstd::bulk::decompress(bytes, capacity).map_err(CompressionError::Zstd)?;
    of_length(content, capacity, expected)
}

/// The same into `content`, whose memory is used again: new memory costs a page fault for each 4 KiB.
pub fn decompress_into(bytes: &[u8], expected: Expected, content: &mut Vec<u8>) -> Result<(), CompressionError> {
    let length = one_frame(bytes, expected)?;
    content.clear();
    content.reserve_exact(length);
    let mut decompressor = zstd::bulk::Decompressor::new().map_err(CompressionError::Zstd)?;
    decompressor.decompress_to_buffer(bytes, content).map_err(CompressionError::Zstd)?;
    let found = Some(content.len() as u64);
    if content.len() == length { Ok(()) } else { Err(CompressionError::ContentSize { found, expected }) }
}

/// One zstd frame of `content` that refers to `prefix`, as `zstd --patch-from` makes it.
pub fn compress_after(prefix: &[u8], content: &[u8]) -> Result<Vec<u8>, CompressionError> {
    let window = window_log(prefix.len() + content.len());
    let mut compressor = zstd::zstd_safe::CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(PATCH_LEVEL),
        CParameter::WindowLog(window),
        CParameter::EnableLongDistanceMatching(true),
        CParameter::ContentSizeFlag(true),
        CParameter::ChecksumFlag(true),
    ] {
        compressor.set_parameter(parameter).map_err(refused)?;
    }
    compressor.ref_prefix(prefix).map_err(refused)?;
    let mut frame = Vec::with_capacity(zstd::zstd_safe::compress_bound(content.len()));
    compressor.compress2(&mut frame, content).map_err(refused)?;
    Ok(frame)
}

/// The content of a frame that refers to `prefix`; another prefix is an error, by zstd's checksum.
pub fn decompress_after(prefix: &[u8], bytes: &[u8], expected: Expected) -> Result<Vec<u8>, CompressionError> {
    let capacity = one_frame(bytes, expected)?;
    let mut decompressor = zstd::zstd_safe::DCtx::create();
    decompressor.set_parameter(DParameter::WindowLogMax(window_log(prefix.len() + capacity))).map_err(refused)?;
    decompressor.ref_prefix(prefix).map_err(refused)?;
    let mut content = Vec::with_capacity(capacity);
    decompressor.decompress(&mut content, bytes).map_err(refused)?;
    of_length(content, capacity, expected)
}

/// The window over this many bytes, as a power of two within zstd's bounds.
fn window_log(bytes: usize) -> u32 {
    (usize::BITS - bytes.leading_zeros()).clamp(10, 27)
}

fn refused(code: usize) -> CompressionError {
    CompressionError::Zstd(io::Error::other(zstd::zstd_safe::get_error_name(code)))
}

/// The content size of `bytes`, which must be exactly one zstd frame.
fn one_frame(bytes: &[u8], expected: Expected) -> Result<usize, CompressionError> {
    const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    if !bytes.starts_with(MAGIC) {
        return Err(CompressionError::NotAFrame);
    }
    match zstd::zstd_safe::find_frame_compressed_size(bytes) {
        Ok(length) if length == bytes.len() => {}
        Ok(_) => return Err(CompressionError::Trailing),
        Err(_) => return Err(CompressionError::NotAFrame),
    }
    let found = zstd::zstd_safe::get_frame_content_size(bytes).map_err(|_| CompressionError::NotAFrame)?;
    let Some(size) = found.filter(|size| expected.admits(*size)) else {
        return Err(CompressionError::ContentSize { found, expected });
    };
    usize::try_from(size).map_err(|_| CompressionError::ContentSize { found, expected })
}

fn of_length(content: Vec<u8>, length: usize, expected: Expected) -> Result<Vec<u8>, CompressionError> {
    let found = Some(content.len() as u64);
    if content.len() == length { Ok(content) } else { Err(CompressionError::ContentSize { found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_needs_what_it_was_made_from() {
        let old: Vec<u8> =
            (0..60_000_u32).flat_map(|number| (number.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        let mut new = old.clone();
        new.splice(1000..1000, *b"some more");
        let patch = compress_after(&old, &new).unwrap();
        assert!(patch.len() < 1000, "{}", patch.len());
        let most = Expected::AtMost(1 << 20);
        assert_eq!(decompress_after(&old, &patch, most).unwrap(), new);
        assert!(decompress_after(&new, &patch, most).is_err());
        assert!(decompress_after(b"", &patch, most).is_err());
        assert!(decompress_after(&old, &patch, Expected::AtMost(1000)).is_err());
        assert!(decompress_after(&old, &patch[..patch.len() - 1], most).is_err());
    }

    #[test]
    fn a_frame_stands_alone_or_is_refused() {
        let content = b"content ".repeat(1000);
        let frame = compress(&content, 10).unwrap();
        assert_eq!(decompress(&frame, Expected::Exactly(8000)).unwrap(), content);
        assert_eq!(compress(&content, 10).unwrap(), frame);
        let mut used = b"what another frame held".repeat(1000);
        decompress_into(&frame, Expected::Exactly(8000), &mut used).unwrap();
        assert_eq!(used, content);
        assert!(decompress_into(&frame, Expected::Exactly(7999), &mut used).is_err());
        assert!(decompress_into(&frame[..frame.len() - 1], Expected::Exactly(8000), &mut used).is_err());
        assert!(decompress(&frame, Expected::Exactly(7999)).is_err());
        assert!(decompress(&frame, Expected::AtMost(7999)).is_err());
        let twice = [frame.clone(), frame.clone()].concat();
        assert!(matches!(decompress(&twice, Expected::AtMost(1 << 20)), Err(CompressionError::Trailing)));
        for end in 0..frame.len() {
            assert!(decompress(&frame[..end], Expected::Exactly(8000)).is_err(), "{end}");
        }
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
        assert!(matches!(decompress(&skippable, Expected::AtMost(10)), Err(CompressionError::NotAFrame)));
        assert_eq!(decompress(&compress(b"", 3).unwrap(), Expected::Exactly(0)).unwrap(), b"");
    }
}
