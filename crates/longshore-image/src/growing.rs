//! A blob that one thread writes while another reads it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex};

/// How far a blob has come.
#[derive(Default)]
pub(crate) struct Growing {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    there_bytes: u64,
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    Complete,
    Broken,
}

impl Growing {
    pub(crate) fn new(there_bytes: u64) -> Growing {
        Growing {
            state: Mutex::new(State {
                there_bytes,
                end: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// States that the first `there_bytes` bytes can be read.
    pub(crate) fn grew_to(&self, there_bytes: u64) {
        self.change(|state| state.there_bytes = there_bytes);
    }

    /// States that the blob is whole and its digest is right.
    pub(crate) fn completed(&self) {
        self.change(|state| state.end = Some(End::Complete));
    }

    /// States that the blob will never be whole; readers get an error.
    pub(crate) fn broke(&self) {
        self.change(|state| {
            state.end.get_or_insert(End::Broken);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        change(&mut state);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until there is more than `offset`; `None` at the end of the blob.
    fn wait_beyond(&self, offset: u64) -> io::Result<Option<u64>> {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        loop {
            match (state.there_bytes > offset, state.end) {
                (_, Some(End::Broken)) => {
                    return Err(io::Error::other("the download of the layer failed"));
                }
                (true, _) => return Ok(Some(state.there_bytes)),
                // The end is told only after the digest was found right.
                (false, Some(End::Complete)) => return Ok(None),
                (false, None) => {
                    state = self
                        .changed
                        .wait(state)
                        .expect("no holder of this lock panics");
                }
            }
        }
    }
}

/// Reads a growing blob from its start, waiting where the writer has not come yet.
pub(crate) struct GrowingReader<'g> {
    pub(crate) file: File,
    pub(crate) growing: &'g Growing,
    pub(crate) offset: u64,
}

impl Read for GrowingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(there_bytes) = self.growing.wait_beyond(self.offset)? else {
            return Ok(0);
        };
        let room = usize::try_from(there_bytes - self.offset).unwrap_or(usize::MAX);
        let length = buffer.len().min(room);
        let read = self.file.read_at(&mut buffer[..length], self.offset)?;
        if read == 0 && length > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_reader_gets_every_byte_of_a_slow_writer() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let growing = Growing::new(0);
        let mut text = Vec::new();
        std::thread::scope(|scope| {
            let reader = file.try_clone().expect("a descriptor");
            let growing = &growing;
            let read = scope.spawn(move || {
                let mut text = Vec::new();
                GrowingReader {
                    file: reader,
                    growing,
                    offset: 0,
                }
                .read_to_end(&mut text)
                .map(|_| text)
            });
            for part in 0..50u8 {
                file.write_all(&[part; 1000]).expect("room");
                growing.grew_to((u64::from(part) + 1) * 1000);
            }
            growing.completed();
            text = read.join().expect("no panic").expect("no error");
        });
        assert_eq!(text.len(), 50_000);
        assert!(
            text.chunks(1000)
                .zip(0u8..)
                .all(|(chunk, part)| chunk == [part; 1000])
        );
    }

    #[test]
    fn a_reader_of_a_broken_blob_is_told() {
        let growing = Growing::new(10);
        growing.broke();
        let mut reader = GrowingReader {
            file: tempfile::tempfile().expect("a temporary file"),
            growing: &growing,
            offset: 0,
        };
        assert!(reader.read(&mut [0; 10]).is_err());
    }
}
