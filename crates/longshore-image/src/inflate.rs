//! Takes the compression off a layer: gzip, zstd or none, told by the first bytes.
//!
//! The media type is not asked: registries hold layers whose type says one thing and whose bytes
//! are another, and every engine reads those.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

const BUFFER_BYTES: usize = 128 << 10;

/// How content is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Tells it from the first bytes; four are enough.
    pub(crate) fn of_magic(bytes: &[u8]) -> Compression {
        match bytes {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            // zstd:chunked and pzstd may begin with a skippable frame.
            [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50 => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// Reads the uncompressed content.
pub(crate) enum Inflate<R: Read> {
    None(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<R>>>),
}

impl<R: Read> Inflate<R> {
    pub(crate) fn new(raw: R) -> io::Result<Inflate<R>> {
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, raw);
        // A first read may give less than four bytes only at the end of very short content, or from
        // a pipe; files give all.
        let compression = Compression::of_magic(raw.fill_buf()?);
        Ok(match compression {
            Compression::None => Inflate::None(raw),
            Compression::Gzip => Inflate::Gzip(Box::new(MultiGzDecoder::new(raw))),
            Compression::Zstd => {
                Inflate::Zstd(Box::new(zstd::stream::read::Decoder::with_buffer(raw)?))
            }
        })
    }

    /// Gives the raw reader back, its unread rest included.
    pub(crate) fn into_raw(self) -> BufReader<R> {
        match self {
            Inflate::None(raw) => raw,
            Inflate::Gzip(decoder) => decoder.into_inner(),
            Inflate::Zstd(decoder) => decoder.finish(),
        }
    }
}

impl<R: Read> Read for Inflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Inflate::None(raw) => raw.read(buffer),
            Inflate::Gzip(decoder) => decoder.read(buffer),
            Inflate::Zstd(decoder) => decoder.read(buffer),
        }
    }
}
