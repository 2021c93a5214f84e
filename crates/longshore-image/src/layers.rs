//! Turns layers into a tree while they still arrive.
//!
//! Three threads in a row, joined by bounded queues: one brings the layers (all at once) into files,
//! one inflates them in order and hashes what comes out, the calling one writes the tree. The time of
//! the whole is near that of the slowest, which is the writing. Nothing runs when it returns.

use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use tokio::sync::Notify;

use crate::digest::{Digest, Hasher};
use crate::error::{ErrorKind, ImageError};
use crate::inflate::Inflate;
use crate::progress::{Event, Progress};
use crate::registry::{Download, Registry};
use crate::unpack::{Limits, TreeSummary, UnpackError, Unpacker};

/// Size of one piece of uncompressed layer, in bytes: large enough that a queue operation costs
/// nothing, small enough to stay in the second-level cache between the threads.
const PIECE_BYTES: usize = 256 << 10;
/// How many pieces may wait for the writing thread: it is held up by the disk now and then.
const PIECES: usize = 32;

/// One layer to unpack.
pub(crate) struct LayerInput<'l> {
    /// How messages name it.
    pub(crate) name: String,
    /// The content as it is stored, compressed or not; it may wait for bytes to arrive.
    pub(crate) raw: Box<dyn Read + Send + 'l>,
    /// What `raw` must hash to, where nobody else checks that.
    pub(crate) digest: Option<Digest>,
    /// What the uncompressed content must hash to.
    pub(crate) diff_id: Digest,
}

/// The layers that come over the network meanwhile.
pub(crate) struct Arrivals<'d> {
    pub(crate) registry: &'d Registry,
    pub(crate) downloads: Vec<Download<'d>>,
    pub(crate) parallel: usize,
}

/// Why a tree could not be made, and whether a stored layer is to blame.
pub(crate) struct Unmade {
    pub(crate) error: ImageError,
    /// A layer of the store that no longer hashes to its name.
    pub(crate) spoilt: Option<Digest>,
}

enum Piece {
    Bytes(Vec<u8>),
    LayerEnd,
}

/// Makes the tree of `inputs`, lowest layer first, in the empty directory `rootfs`.
pub(crate) fn unpack(
    inputs: Vec<LayerInput<'_>>,
    arrivals: Option<Arrivals<'_>>,
    rootfs: &Path,
    image: &str,
    progress: &dyn Progress,
) -> Result<TreeSummary, Unmade> {
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let cancel = Notify::new();
    let (to_writer, pieces) = mpsc::sync_channel(PIECES);
    let (to_inflater, used) = mpsc::channel();
    let (arrived, inflated, written) = thread::scope(|scope| {
        let cancel = &cancel;
        let arriving = arrivals.map(|arrivals| {
            scope.spawn(move || {
                arrivals
                    .registry
                    .download(arrivals.downloads, arrivals.parallel, cancel, progress)
            })
        });
        let inflating = scope.spawn(move || inflate_all(inputs, image, &to_writer, &used));
        let written = write_tree(&names, pieces, &to_inflater, rootfs, progress);
        if written.is_err() {
            cancel.notify_one();
        }
        let inflated = inflating
            .join()
            .expect("the inflating thread does not panic");
        let arrived = match arriving {
            Some(thread) => thread.join().expect("the network thread does not panic"),
            None => Ok(()),
        };
        (arrived, inflated, written)
    });
    // The first cause is the one nearest to the network; the others follow from it.
    let plain = |error| Unmade {
        error,
        spoilt: None,
    };
    arrived.map_err(plain)?;
    inflated?;
    let summary = written.map_err(|error| plain(unpack_failure(error, rootfs, image)))?;
    progress.event(Event::Detail(told(&summary, image)));
    Ok(summary)
}

/// What an unpacked tree is, and what it could not keep of the layers.
fn told(summary: &TreeSummary, image: &str) -> String {
    let total = &summary.total;
    let mut text = format!(
        "{image}: {} names in {} layers",
        summary.names, summary.layers
    );
    for (count, what) in [
        (total.devices_emptied, "devices became empty files"),
        (total.owners_dropped, "owners became you"),
        (total.modes_opened, "modes were opened for you"),
        (total.xattrs_skipped, "extended attributes could not be set"),
        (total.skipped, "entries of unknown kinds were left out"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

fn unpack_failure(error: UnpackError, rootfs: &Path, image: &str) -> ImageError {
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    let mut errno = None;
    while let Some(one) = cause {
        if let Some(io) = one.downcast_ref::<io::Error>() {
            errno = errno.or(io.raw_os_error());
        }
        if let Some(number) = one.downcast_ref::<rustix::io::Errno>() {
            errno = errno.or(Some(number.raw_os_error()));
        }
        cause = one.source();
    }
    use rustix::io::Errno;
    match errno.map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => ImageError::new(
            ErrorKind::NoSpace,
            format!("the disk of {} is full, {image} was not unpacked", rootfs.display()),
        )
        .hint("free some space (`longshore cache clean`), or put the cache elsewhere with LONGSHORE_CACHEDIR"),
        Some(_) => ImageError::new(
            ErrorKind::Io,
            format!("cannot unpack {image} into {}", rootfs.display()),
        ),
        None => ImageError::new(ErrorKind::Corrupt, format!("cannot unpack {image}")),
    }
    .because(error)
}

/// Inflates every layer in turn and sends it on.
fn inflate_all(
    inputs: Vec<LayerInput<'_>>,
    image: &str,
    to_writer: &SyncSender<Piece>,
    used: &Receiver<Vec<u8>>,
) -> Result<(), Unmade> {
    for input in inputs {
        let what = format!("layer {} of {image}", input.name);
        let stored = input.digest.clone();
        let mut raw = Hashing {
            raw: input.raw,
            hasher: input.digest.as_ref().map(|_| Hasher::new()),
        };
        let sent = inflate(&mut raw, &input.diff_id, to_writer, used);
        // What follows the compressed stream belongs to the layer too, and tells a spoilt file.
        let rest = io::copy(&mut raw, &mut io::sink());
        if let (Some(promised), Some(hasher)) = (&stored, raw.hasher) {
            let found = hasher.finish();
            if rest.is_ok() && *promised != found {
                return Err(Unmade {
                    error: ImageError::new(
                        ErrorKind::Corrupt,
                        format!("{what} is damaged: its digest is {found}, not {promised}"),
                    ),
                    spoilt: stored,
                });
            }
        }
        let broken = |error: io::Error| Unmade {
            error: ImageError::new(ErrorKind::Corrupt, format!("{what} cannot be inflated"))
                .because(error),
            spoilt: None,
        };
        match sent {
            Err(Stop::WriterGone) => return Ok(()),
            Err(Stop::Broken(error)) => return Err(broken(error)),
            Err(Stop::Mismatch(found)) => {
                return Err(Unmade {
                    error: ImageError::new(
                        ErrorKind::Corrupt,
                        format!(
                            "{what} unpacks to other content than the image states: its diff_id \
                             is {found}, not {}",
                            input.diff_id
                        ),
                    )
                    .hint("the image was put together wrongly; ask its maker to push it again"),
                    spoilt: None,
                });
            }
            Ok(()) => rest.map(drop).map_err(broken)?,
        }
        if to_writer.send(Piece::LayerEnd).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

enum Stop {
    WriterGone,
    Broken(io::Error),
    Mismatch(Digest),
}

fn inflate(
    raw: &mut impl Read,
    diff_id: &Digest,
    to_writer: &SyncSender<Piece>,
    used: &Receiver<Vec<u8>>,
) -> Result<(), Stop> {
    let mut reader = Inflate::new(raw).map_err(Stop::Broken)?;
    let mut hasher = Hasher::new();
    loop {
        let mut piece = used.try_recv().unwrap_or_default();
        piece.resize(PIECE_BYTES, 0);
        let mut filled = 0;
        while filled < PIECE_BYTES {
            match reader.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Stop::Broken(error)),
            }
        }
        if filled == 0 {
            break;
        }
        piece.truncate(filled);
        hasher.update(&piece);
        to_writer
            .send(Piece::Bytes(piece))
            .map_err(|_| Stop::WriterGone)?;
    }
    // The decoder has read ahead; what it did not use is hashed already.
    drop(reader.into_raw());
    let found = hasher.finish();
    if found == *diff_id {
        Ok(())
    } else {
        Err(Stop::Mismatch(found))
    }
}

struct Hashing<R> {
    raw: R,
    hasher: Option<Hasher>,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.raw.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..read]);
        }
        Ok(read)
    }
}

fn write_tree(
    names: &[String],
    pieces: Receiver<Piece>,
    to_inflater: &Sender<Vec<u8>>,
    rootfs: &Path,
    progress: &dyn Progress,
) -> Result<TreeSummary, UnpackError> {
    let mut unpacker = Unpacker::new(rootfs, Limits::default())?;
    for (layer_index, name) in names.iter().enumerate() {
        let mut layer = LayerReader {
            pieces: &pieces,
            to_inflater,
            piece: Vec::new(),
            at: 0,
            ended: false,
        };
        unpacker.layer(name, &mut layer)?;
        layer.drain();
        progress.event(Event::Unpacked { layer_index });
    }
    unpacker.finish()
}

/// One layer as a stream, made of the pieces that the inflating thread sends.
struct LayerReader<'r> {
    pieces: &'r Receiver<Piece>,
    to_inflater: &'r Sender<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
    ended: bool,
}

impl LayerReader<'_> {
    /// Takes in the next piece; whether there was one.
    fn advance(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        // The buffer goes round; the inflating thread may have ended already.
        let _ = self.to_inflater.send(std::mem::take(&mut self.piece));
        self.at = 0;
        match self.pieces.recv() {
            Ok(Piece::Bytes(piece)) => {
                self.piece = piece;
                Ok(true)
            }
            Ok(Piece::LayerEnd) => {
                self.ended = true;
                Ok(false)
            }
            Err(_) => Err(io::Error::other("the layer could not be read to its end")),
        }
    }

    /// Passes over what follows the end of the archive, up to the end of the layer.
    fn drain(mut self) {
        // A failure to get there is reported by the thread that met it.
        while matches!(self.advance(), Ok(true)) {}
    }
}

impl Read for LayerReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            if !self.advance()? {
                return Ok(0);
            }
        }
        let length = buffer.len().min(self.piece.len() - self.at);
        buffer[..length].copy_from_slice(&self.piece[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}
