//! Image references, registries, layers, unpacking and the local store.
//!
//! [`open()`] is what a container start needs: an image of the store costs a few system calls, any
//! other is pulled first. No thread is left when a function of this crate returns, so that the caller
//! may make namespaces.

mod credentials;
mod digest;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod growing;
mod inflate;
mod layers;
mod local;
mod lock;
mod manifest;
mod open;
mod progress;
mod reference;
mod registry;
mod sandbox;
mod store;
mod unpack;

pub use digest::{Digest, NotADigest};
pub use error::{ErrorKind, ImageError};
pub use lock::Lock;
pub use manifest::{Descriptor, Document, HistoryStep, ImageConfig, Index, Manifest, Platform};
pub use open::{Inspection, OpenImage, PullOptions, PullPolicy, inspect, open};
pub use progress::{Event, Progress, Silent};
pub use reference::{Bare, ImageRef, RegistryRef};
pub use registry::Transport;
pub use sandbox::{CONFIG_IN_SANDBOX, Existing, LayerKeeping, Sandbox, pull_sandbox};
pub use store::{CleanPlan, ItemKind, RefRecord, Store, StoreItem, StoredImage};
pub use unpack::{LayerSummary, Limits, TreeSummary, UnpackError, Unpacker};
