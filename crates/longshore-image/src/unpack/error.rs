//! Why a layer could not be unpacked.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A layer could not be unpacked. The tree is then half made and has to be removed.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// The folder for the tree is missing, is not empty or cannot be written.
    #[error("cannot unpack into {}", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The source of the bytes failed: a broken download or compressed stream.
    #[error("cannot read layer {layer}")]
    Stream {
        /// The layer's name.
        layer: String,
        /// What the source said.
        #[source]
        source: io::Error,
    },
    /// The bytes are not a tar archive, or a broken one.
    #[error("layer {layer} is not a sound tar archive: {reason} (near byte {offset})")]
    Malformed {
        /// The layer's name.
        layer: String,
        /// Where in the uncompressed layer.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// An entry asks for something that an image may not or cannot have.
    #[error("layer {layer}, entry `{entry}`: {reason}")]
    Refused {
        /// The layer's name.
        layer: String,
        /// The entry's path, made printable.
        entry: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The image is larger than the limits allow.
    #[error("layer {layer}, {at}: more than {most} {what}")]
    Limit {
        /// The layer's name.
        layer: String,
        /// Which entry, or where in the layer.
        at: String,
        /// The limit.
        most: u64,
        /// What is limited, in the plural.
        what: &'static str,
    },
    /// The file system refused something: it is full, or cannot hold what the image has.
    #[error("layer {layer}, entry `{entry}`: cannot {action}")]
    Write {
        /// The layer's name.
        layer: String,
        /// The entry's path, made printable.
        entry: String,
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl UnpackError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            UnpackError::Root { .. } => "choose an empty folder that you may write",
            UnpackError::Stream { .. } => "pull the image again",
            UnpackError::Malformed { .. } => {
                "pull the image again; if it stays so, its layer was broken when it was built"
            }
            UnpackError::Refused { .. } => {
                "nothing was written outside the image; rebuild it without this entry, or ask \
                 whoever made it"
            }
            UnpackError::Limit { .. } => {
                "an image of this size is most likely broken or made to do harm; ask whoever made it"
            }
            UnpackError::Write { source, .. } => match source.raw_os_error() {
                Some(libc_enospc::ENOSPC | libc_enospc::EDQUOT) => {
                    "free some space, or choose another folder for images"
                }
                _ => "choose a local file system for images (ext4, xfs, btrfs or tmpfs)",
            },
        }
    }
}

/// The two ways in which a file system is full.
mod libc_enospc {
    pub(super) const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();
    pub(super) const EDQUOT: i32 = rustix::io::Errno::DQUOT.raw_os_error();
}

/// Makes a name of any bytes fit for a message: no control characters, not too long.
pub(super) fn shown(name: &[u8]) -> String {
    const MOST_CHARS: usize = 200;
    let text = String::from_utf8_lossy(name);
    let mut shown = String::new();
    for (index, char) in text.chars().enumerate() {
        if index == MOST_CHARS {
            shown.push('…');
            break;
        }
        if char.is_control() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}
