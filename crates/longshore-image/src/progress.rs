//! What a pull says while it works; the binary decides how it looks.

use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Another process makes the same thing; this one waits for it.
    Waiting {
        /// What is being made.
        what: String,
    },
    /// The image is known; its layers follow.
    Layers {
        /// Compressed size of each layer in bytes, lowest first.
        layer_bytes: Vec<u64>,
        /// How much of each layer is here already, in bytes.
        here_bytes: Vec<u64>,
    },
    /// Part of a layer arrived.
    Fetched {
        /// Which layer, from 0.
        layer_index: usize,
        /// How much arrived with this event, in bytes.
        fetched_bytes: u64,
    },
    /// A layer lies unpacked in the tree.
    Unpacked {
        /// Which layer, from 0.
        layer_index: usize,
    },
    /// A request failed and will be made again.
    Retrying {
        /// Why, on which object.
        why: String,
        /// After which pause.
        after: Duration,
    },
    /// Something that the user should know.
    Notice(String),
    /// Something that explains a choice.
    Detail(String),
}

/// Takes the events of a pull; called from several threads.
pub trait Progress: Sync {
    /// Takes one event; must be quick.
    fn event(&self, event: Event);
}

/// Says nothing.
pub struct Silent;

impl Progress for Silent {
    fn event(&self, _event: Event) {}
}
