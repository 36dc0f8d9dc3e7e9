//! Reads pieces of a bundle file exactly, or refuses them.

use super::{BundleError, garbled, header_of, padding};
use crate::bundle::limits::NOTE_MAXIMUM_BYTES;
use crate::bundle::member::{HINT_FIRST_LINE, MemberName};
use crate::bundle::ustar;
use std::io::{self, Read};

/// The name and size in a member's header, which must be exactly as a writer makes it; None for a block of zeros.
pub(super) fn member_of(header: &[u8; 512]) -> Result<Option<(MemberName, u64)>, BundleError> {
    if *header == [0; 512] {
        return Ok(None);
    }
    let unreadable = || garbled("the header of a member", "it is not the header of a bundle's member");
    // What is damaged has another sum than it says.
    let refused = || if ustar::has_right_sum(header) { BundleError::Repacked } else { unreadable() };
    let (name, size) = ustar::announced(header).ok_or_else(refused)?;
    let name: MemberName = name.parse().map_err(|_| refused())?;
    if header_of(&name, size) == header { Ok(Some((name, size))) } else { Err(refused()) }
}

pub(super) fn read_hint(reader: &mut impl Read) -> Result<Vec<u8>, BundleError> {
    let mut header = [0; 512];
    let mut filled = 0;
    while filled < header.len() {
        match read_some(reader, &mut header[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    let name = MemberName::Hint.to_string();
    // A file that begins with the name was a bundle once; any other file never was.
    if !header.starts_with(name.as_bytes()) {
        return Err(BundleError::NotABundle);
    }
    if filled < header.len() {
        return Err(BundleError::Truncated { member: name });
    }
    let Some((MemberName::Hint, size)) = member_of(&header)? else { return Err(BundleError::NotABundle) };
    if size > NOTE_MAXIMUM_BYTES {
        return Err(BundleError::TooLarge { member: name });
    }
    let hint = read_bytes(reader, &name, size)?;
    if hint.starts_with(HINT_FIRST_LINE.as_bytes()) {
        Ok(hint)
    } else {
        Err(garbled(&name, "its first line is not `sidle bundle 1`"))
    }
}

pub(super) fn read_header(reader: &mut impl Read, member: &str) -> Result<[u8; 512], BundleError> {
    let mut header = [0; 512];
    read_exact(reader, &mut header, member)?;
    Ok(header)
}

pub(super) fn read_bytes(reader: &mut impl Read, member: &str, size: u64) -> Result<Vec<u8>, BundleError> {
    let mut bytes = Vec::new();
    let read = reader.by_ref().take(size).read_to_end(&mut bytes);
    read.map_err(|source| BundleError::Io { verb: "read", source })?;
    if bytes.len() as u64 != size {
        return Err(BundleError::Truncated { member: member.to_owned() });
    }
    read_padding(reader, member, size)?;
    Ok(bytes)
}

pub(super) fn read_padding(reader: &mut impl Read, member: &str, size: u64) -> Result<(), BundleError> {
    let mut bytes = [0; 512];
    let bytes = &mut bytes[..padding(size)];
    read_exact(reader, bytes, member)?;
    if bytes.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(garbled(member, "its padding is not zeros")) }
}

pub(super) fn read_exact(reader: &mut impl Read, buffer: &mut [u8], member: &str) -> Result<(), BundleError> {
    reader.read_exact(buffer).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => BundleError::Truncated { member: member.to_owned() },
        _ => BundleError::Io { verb: "read", source },
    })
}

pub(super) fn read_some(reader: &mut impl Read, buffer: &mut [u8]) -> Result<usize, BundleError> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map_err(|source| BundleError::Io { verb: "read", source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> [u8; 512] {
        header_of(&MemberName::Hint, 5).try_into().expect("a name without a pax record")
    }

    /// The sum of a header's bytes in its field, as each writer of tar makes it.
    fn with_sum(mut header: [u8; 512]) -> [u8; 512] {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header
    }

    #[test]
    fn a_header_of_another_program_is_not_called_damaged() {
        assert!(member_of(&header()).unwrap().is_some());
        for place in [100, 110, 140, 265] {
            let mut other = header();
            other[place] = if other[place] == b'1' { b'2' } else { b'1' };
            assert!(matches!(member_of(&other), Err(BundleError::Garbled { .. })), "byte {place}");
            let repacked = member_of(&with_sum(other)).unwrap_err();
            assert!(matches!(repacked, BundleError::Repacked), "byte {place}: {repacked}");
            assert!(!repacked.hint().unwrap().contains("transit"), "{repacked:?}");
        }
    }
}
