//! Decompresses gzip bodies (of metadata only). Limits hold for the output: a gzip bomb ends there.

use crate::fetch::fault::Fault;
use crate::fetch::stream::{Meter, Stream};
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, ErrorKind, Read};

/// Bytes decompressed at once.
const CHUNK_BYTES: usize = 16 << 10;

/// Most gzip bytes for a file of `maximum` bytes: incompressible data grows by a few bytes per block. Stops endless streams without output.
pub(in crate::fetch) fn compressed_maximum(maximum: u64) -> u64 {
    maximum.saturating_add(maximum / 1024).saturating_add(1024)
}

/// Appends the decompressed `stream` to `into`; more than `maximum` bytes are an error. The checksum is checked, and only gzip may follow
/// (RFC 1952 §2.2).
pub(in crate::fetch) fn read_all(
    stream: &mut Stream,
    meter: &mut Meter,
    into: &mut Vec<u8>,
    maximum: u64,
) -> Result<(), Fault> {
    let compressed = Compressed { stream, meter, left: compressed_maximum(maximum), fault: None };
    let mut decoder = MultiGzDecoder::new(compressed);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match decoder.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) if (into.len() + count) as u64 > maximum => {
                return Err(Fault::wrong(format!("it sends gzip of more than the {maximum} bytes that are allowed")));
            }
            Ok(count) => into.extend_from_slice(&chunk[..count]),
            Err(error) => return Err(decoder.get_mut().fault.take().unwrap_or_else(|| unreadable(&error))),
        }
    }
}

/// A body as it comes over the wire. The decoder knows I/O errors only: the fault behind one waits here.
struct Compressed<'s> {
    stream: &'s mut Stream,
    meter: &'s mut Meter,
    left: u64,
    fault: Option<Fault>,
}

impl BufRead for Compressed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let received = match self.stream.receive(self.meter) {
            Ok(true) if self.left == 0 => Err(Fault::wrong("it sends more gzip than the file may take")),
            other => other,
        };
        if let Err(fault) = received {
            let text = fault.reason().to_owned();
            self.fault = Some(fault);
            return Err(io::Error::other(text));
        }
        let ahead = self.stream.ahead();
        let most = usize::try_from(self.left).unwrap_or(ahead.len()).min(ahead.len());
        Ok(&ahead[..most])
    }

    fn consume(&mut self, count: usize) {
        self.stream.take(count as u64);
        self.left = self.left.saturating_sub(count as u64);
    }
}

impl Read for Compressed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

fn unreadable(error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::UnexpectedEof => Fault::temporary("the gzip that it sends is cut off"),
        _ => Fault::wrong(format!("what it sends as gzip can't be opened: {error}")),
    }
}
