//! A byte stream that is read in large pieces and handed out without copying.

use std::io::{self, Read};

/// Large enough that a file's data is written in few calls, small enough to stay in the cache.
const BUFFER_BYTES: usize = 256 * 1024;

/// The buffered input of one layer, with the number of bytes taken so far.
pub(super) struct Stream<'r> {
    source: &'r mut dyn Read,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    taken: u64,
}

impl<'r> Stream<'r> {
    /// Wraps `source`; `buffer` is reused from layer to layer.
    pub(super) fn new(source: &'r mut dyn Read, mut buffer: Vec<u8>) -> Stream<'r> {
        buffer.resize(BUFFER_BYTES, 0);
        Stream {
            source,
            buffer,
            start: 0,
            end: 0,
            taken: 0,
        }
    }

    /// Gives the buffer back for the next layer.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Bytes handed out or skipped so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Waits for at least `wanted` buffered bytes and returns how many there are: fewer than
    /// `wanted` only at the end of the stream, or where the buffer is smaller than that.
    fn fill(&mut self, wanted: usize) -> io::Result<usize> {
        let wanted = wanted.min(self.buffer.len());
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        while self.end - self.start < wanted {
            if self.buffer.len() - self.start < wanted {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end - self.start)
    }

    /// Takes the next bytes: as many as are asked for if the buffer can hold them, else a full
    /// buffer; fewer only at the end of the stream.
    pub(super) fn take(&mut self, wanted: u64) -> io::Result<&[u8]> {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let there = self.fill(wanted)?.min(wanted);
        let piece = self.start..self.start + there;
        self.start += there;
        self.taken += there as u64;
        Ok(&self.buffer[piece])
    }

    /// Passes over `count` bytes and returns how many there were.
    pub(super) fn skip(&mut self, count: u64) -> io::Result<u64> {
        let mut left = count;
        while left > 0 {
            let there = self.take(left)?.len() as u64;
            if there == 0 {
                break;
            }
            left -= there;
        }
        Ok(count - left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one to three bytes a call, as a pipe may.
    struct Trickle(Vec<u8>, usize);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = (self.1 % 3 + 1)
                .min(buffer.len())
                .min(self.0.len() - self.1);
            buffer[..count].copy_from_slice(&self.0[self.1..self.1 + count]);
            self.1 += count;
            Ok(count)
        }
    }

    #[test]
    fn pieces_are_whole_although_the_source_trickles() {
        let bytes: Vec<u8> = (0..2000_u32).map(|index| index as u8).collect();
        let mut source = Trickle(bytes.clone(), 0);
        let mut stream = Stream::new(&mut source, Vec::new());
        assert_eq!(stream.take(512).unwrap(), &bytes[..512]);
        assert_eq!(stream.skip(100).unwrap(), 100);
        assert_eq!(stream.take(700).unwrap(), &bytes[612..1312]);
        assert_eq!(stream.take(10_000).unwrap(), &bytes[1312..]);
        assert_eq!(stream.take(1).unwrap(), b"");
        assert_eq!(stream.taken(), 2000);
    }
}
