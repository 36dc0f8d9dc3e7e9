//! zstd, one frame at a time: always with a content size, never with more or less around it than that one frame.

use std::fmt;
use std::io;

/// Why bytes are not the one zstd frame they should be.
#[derive(Debug)]
pub enum CompressionError {
    /// zstd refused; its words.
    Zstd(io::Error),
    /// No frame at the start, or one that is cut off or skippable.
    NotAFrame,
    /// Bytes follow the frame.
    Trailing,
    /// The frame does not say how much it holds, or another amount than expected.
    ContentSize {
        /// What the frame says, bytes.
        found: Option<u64>,
        /// What it should say.
        expected: Expected,
    },
}

/// How many bytes a frame may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// This many bytes.
    Exactly(u64),
    /// No more than this many bytes.
    AtMost(u64),
}

impl Expected {
    fn admits(self, size: u64) -> bool {
        match self {
            Self::Exactly(bytes) => size == bytes,
            Self::AtMost(bytes) => size <= bytes,
        }
    }
}

impl fmt::Display for CompressionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zstd(source) => write!(formatter, "cannot run zstd on it: {source}"),
            Self::NotAFrame => formatter.write_str("cannot decompress it: it is no complete zstd frame"),
            Self::Trailing => formatter.write_str("cannot decompress it: bytes follow the zstd frame"),
            Self::ContentSize { found, expected } => {
                formatter.write_str("cannot decompress it: the zstd frame ")?;
                match found {
                    Some(found) => write!(formatter, "holds {found} bytes, ")?,
                    None => formatter.write_str("does not say what it holds, ")?,
                }
                match expected {
                    Expected::Exactly(bytes) => write!(formatter, "expected {bytes}"),
                    Expected::AtMost(bytes) => write!(formatter, "expected at most {bytes}"),
                }
            }
        }
    }
}

impl std::error::Error for CompressionError {}

/// One zstd frame of `content`. The same content and level give the same bytes on every machine: a context of its own, one thread, every
/// parameter by level. The frame says its content size (readers need it) and ends with zstd's checksum: sidle doesn't need that, but it lets
/// `zstd -t` and `tar --zstd` notice damage when a payload is unpacked by hand, for 4 bytes per frame and no measurable time.
pub fn compress(content: &[u8], level: i32) -> Result<Vec<u8>, CompressionError> {
    let mut compressor = zstd::bulk::Compressor::new(level).map_err(CompressionError::Zstd)?;
    let parameters = [
        zstd::zstd_safe::CParameter::ContentSizeFlag(true),
        zstd::zstd_safe::CParameter::ChecksumFlag(true),
        zstd::zstd_safe::CParameter::DictIdFlag(false),
    ];
    for parameter in parameters {
        compressor.set_parameter(parameter).map_err(CompressionError::Zstd)?;
    }
    compressor.compress(content).map_err(CompressionError::Zstd)
}

/// The content of `bytes`, which must be exactly one zstd frame that holds `expected` bytes. Allocates what the frame says only after
/// that has been compared.
pub fn decompress(bytes: &[u8], expected: Expected) -> Result<Vec<u8>, CompressionError> {
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
    let capacity = usize::try_from(size).map_err(|_| CompressionError::ContentSize { found, expected })?;
    let content = zstd::bulk::decompress(bytes, capacity).map_err(CompressionError::Zstd)?;
    if content.len() == capacity { Ok(content) } else { Err(CompressionError::ContentSize { found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_stands_alone_or_is_refused() {
        let content = b"content ".repeat(1000);
        let frame = compress(&content, 10).unwrap();
        assert_eq!(decompress(&frame, Expected::Exactly(8000)).unwrap(), content);
        assert_eq!(compress(&content, 10).unwrap(), frame);
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
