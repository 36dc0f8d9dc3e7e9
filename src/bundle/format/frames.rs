//! The cut of a payload's members into frames. The packer plans it; a reader derives it from the frames' lengths, and accepts only cuts
//! between members, or inside a file that has its frames to itself.

use crate::bundle::limits::FRAME_CONTENT_TARGET_BYTES;
use crate::bundle::ustar;
use std::ops::Range;

/// A member, as far as the cut depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of its header blocks.
    pub header: u64,
    /// Bytes of its content, without padding.
    pub content: u64,
    /// No frame mixes groups.
    pub group: Group,
}

/// Members that may share a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// All directories.
    Directories,
    /// The files of one generation.
    Files(u32),
    /// All links.
    Links,
}

impl Shape {
    /// The shape of a tar member.
    pub fn of(member: &ustar::Member<'_>, group: Group) -> Self {
        Self { header: member.header_length(), content: member.content_length(), group }
    }

    /// Bytes of the whole member, padding included.
    pub fn length(&self) -> u64 {
        self.header + self.content + ustar::padding(self.content)
    }
}

/// The content of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holds {
    /// Whole members.
    Members(Range<usize>),
    /// A part of one file: the first part with the header, the last part with the padding.
    Part {
        /// Index of the file among the members.
        entry: usize,
        /// Where in the file's content the part begins.
        offset: u64,
        /// Bytes of the file's content in this frame.
        length: u64,
    },
    /// The end of the archive.
    End,
}

/// One planned frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Its content.
    pub holds: Holds,
    /// Tar bytes in it.
    pub content_length: u64,
    /// Its members' group; None for the end of the archive.
    pub group: Option<Group>,
}

/// Cuts members into frames of about 8 MiB.
pub fn plan(shapes: &[Shape]) -> Vec<Planned> {
    let mut frames = Vec::new();
    let mut start = 0;
    while let Some(first) = shapes.get(start) {
        if first.length() > FRAME_CONTENT_TARGET_BYTES {
            plan_parts(start, first, &mut frames);
            start += 1;
            continue;
        }
        let mut end = start;
        let mut content_length = 0;
        for shape in &shapes[start..] {
            if shape.group != first.group || content_length + shape.length() > FRAME_CONTENT_TARGET_BYTES {
                break;
            }
            content_length += shape.length();
            end += 1;
        }
        frames.push(Planned { holds: Holds::Members(start..end), content_length, group: Some(first.group) });
        start = end;
    }
    frames.push(Planned { holds: Holds::End, content_length: ustar::END.len() as u64, group: None });
    frames
}

/// The frames of one big file.
fn plan_parts(entry: usize, shape: &Shape, frames: &mut Vec<Planned>) {
    let mut offset = 0;
    while offset < shape.content {
        let header = if offset == 0 { shape.header } else { 0 };
        let remaining = shape.content - offset;
        let whole = header + remaining + ustar::padding(shape.content);
        let (length, content_length) = if whole <= FRAME_CONTENT_TARGET_BYTES {
            (remaining, whole)
        } else {
            // The padding never stands alone: a reader wants content in every part.
            let length = (FRAME_CONTENT_TARGET_BYTES - header).min(remaining - 1);
            (length, header + length)
        };
        frames.push(Planned { holds: Holds::Part { entry, offset, length }, content_length, group: Some(shape.group) });
        offset += length;
    }
}

/// Why a cut is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadCut {
    /// Index of the frame.
    pub frame: usize,
    /// The reason.
    pub what: &'static str,
}

/// Derives each frame's content from the frames' lengths; an error names the first bad frame.
pub fn layout(shapes: &[Shape], content_lengths: &[u64]) -> Result<Vec<Holds>, BadCut> {
    let mut holds = Vec::with_capacity(content_lengths.len());
    let mut next = 0;
    let mut offset = 0;
    for (frame, &length) in content_lengths.iter().enumerate() {
        let bad = |what| Err(BadCut { frame, what });
        let Some(shape) = shapes.get(next) else {
            if length != ustar::END.len() as u64 || frame + 1 != content_lengths.len() {
                return bad("the last frame must hold the end of the archive and nothing else");
            }
            holds.push(Holds::End);
            return Ok(holds);
        };
        if offset > 0 {
            let remaining = shape.content - offset;
            if length > 0 && length < remaining {
                holds.push(Holds::Part { entry: next, offset, length });
                offset += length;
            } else if length == remaining + ustar::padding(shape.content) {
                holds.push(Holds::Part { entry: next, offset, length: remaining });
                next += 1;
                offset = 0;
            } else {
                return bad("it does not end with the file that it continues");
            }
            continue;
        }
        let first = next;
        let mut used = 0_u64;
        while let Some(member) = shapes.get(next).map(Shape::length).filter(|member| used + member <= length) {
            used += member;
            next += 1;
        }
        if used == length && used > 0 {
            holds.push(Holds::Members(first..next));
        } else if used == 0 && length > shape.header && length < shape.header + shape.content {
            offset = length - shape.header;
            holds.push(Holds::Part { entry: first, offset: 0, length: offset });
        } else {
            return bad("it is cut neither between members nor inside a file of its own");
        }
    }
    Err(BadCut { frame: content_lengths.len(), what: "frames are missing" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(content: u64, group: Group) -> Shape {
        Shape { header: 512, content, group }
    }

    fn lengths(frames: &[Planned]) -> Vec<u64> {
        frames.iter().map(|frame| frame.content_length).collect()
    }

    #[test]
    fn a_big_file_has_frames_of_its_own() {
        let group = Group::Files(0);
        let shapes = [shape(10, group), shape(20 << 20, group), shape(10, group), shape(10, Group::Files(1))];
        let frames = plan(&shapes);
        let holds: Vec<_> = frames.iter().map(|frame| frame.holds.clone()).collect();
        assert_eq!(holds[0], Holds::Members(0..1));
        assert!(matches!(holds[1], Holds::Part { entry: 1, offset: 0, .. }));
        assert_eq!(holds[4..], [Holds::Members(2..3), Holds::Members(3..4), Holds::End]);
        assert_eq!(layout(&shapes, &lengths(&frames)), Ok(holds));
    }

    #[test]
    fn cuts_through_headers_or_padding_are_refused() {
        let shapes = [shape(1000, Group::Files(0)), shape(1000, Group::Files(0))];
        let end = 1024;
        assert!(layout(&shapes, &[1536, 1536, end]).is_ok());
        assert!(layout(&shapes, &[512 + 600, 424, 1536, end]).is_ok());
        for bad in [
            &[512, 1024, 1536, end][..],
            &[1536 - 24, 24, 1536, end],
            &[512 + 600, 424 + 1536, end],
            &[1536 + 600, 936, end],
            &[0, 3072, end],
            &[3072, end, end],
            &[3072 + end],
            &[3072],
            &[1536, end],
            &[],
        ] {
            assert!(layout(&shapes, bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_reader_derives_what_the_packer_planned(
            contents in prop::collection::vec(prop_oneof![0_u64..2000, (7_u64 << 20)..(9 << 20), Just((8 << 20) - 512), (15_u64 << 20)..(26 << 20)], 0..12),
        ) {
            let shapes: Vec<Shape> = contents.iter().map(|content| shape(*content, Group::Files(0))).collect();
            let frames = plan(&shapes);
            let total: u64 = shapes.iter().map(Shape::length).sum::<u64>() + 1024;
            prop_assert_eq!(lengths(&frames).iter().sum::<u64>(), total);
            prop_assert!(frames.iter().all(|frame| frame.content_length <= FRAME_CONTENT_TARGET_BYTES && frame.content_length > 0));
            let holds: Vec<_> = frames.iter().map(|frame| frame.holds.clone()).collect();
            prop_assert_eq!(layout(&shapes, &lengths(&frames)), Ok(holds));
        }
    }
}
