//! The bytes of one request: neighbouring frames, and small gaps between them.

use crate::bundle::manifest::Frame;

/// Largest gap in one request: a line of 10 Mbit/s carries as much while a request goes around half the world.
pub(super) const GAP_BYTES_MAXIMUM: u64 = 256 << 10;

/// The end of the request that begins with the first of the `wanted` frames (ascending). Frames that `is_here` are not asked for.
pub(super) fn end_of_run(wanted: &[Frame], is_here: impl Fn(&Frame) -> bool) -> u64 {
    let mut end = wanted.first().map_or(0, |frame| frame.offset + frame.length);
    let missing = wanted.iter().skip(1).filter(|frame| !is_here(frame));
    for frame in missing {
        // A frame that isn't behind the one before never belongs to its run.
        if frame.offset < end || frame.offset - end > GAP_BYTES_MAXIMUM {
            break;
        }
        end = frame.offset + frame.length;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn frame(offset: u64, length: u64) -> Frame {
        Frame { offset, length, sha256: Digest::of(b""), content_length: 0, generation: 0 }
    }

    #[test]
    fn neighbours_and_small_gaps_are_one_request() {
        let run = |frames: &[Frame]| end_of_run(frames, |_| false);
        assert_eq!(run(&[]), 0);
        assert_eq!(run(&[frame(5, 10)]), 15);
        assert_eq!(run(&[frame(5, 10), frame(15, 1), frame(16, 4)]), 20);
        assert_eq!(run(&[frame(0, 10), frame(10 + GAP_BYTES_MAXIMUM, 1)]), 11 + GAP_BYTES_MAXIMUM);
        assert_eq!(run(&[frame(0, 10), frame(11 + GAP_BYTES_MAXIMUM, 1)]), 10);
        assert_eq!(run(&[frame(50, 10), frame(0, 10)]), 60);
        let large = frame(10, GAP_BYTES_MAXIMUM + 1);
        assert_eq!(end_of_run(&[frame(0, 10), large, frame(11 + GAP_BYTES_MAXIMUM, 5)], |frame| *frame == large), 10);
    }
}
