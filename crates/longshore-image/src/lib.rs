//! Image references, registries, layers, unpacking and the local store.

mod unpack;

pub use unpack::{LayerSummary, Limits, TreeSummary, UnpackError, Unpacker};
