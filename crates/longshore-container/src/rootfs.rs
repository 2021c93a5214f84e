//! What a container is started from: a tree of files and what its image says about it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// A directory that will be the root of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rootfs {
    /// The directory, absolute.
    pub path: PathBuf,
    /// The image as its user named it, for messages and `APPTAINER_CONTAINER`.
    pub name: OsString,
    /// What the image says about itself.
    pub config: ImageConfig,
}

/// The part of an OCI image configuration that matters for running it.
///
/// Arguments and variables are taken byte for byte, never through a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// Variables, in the order of the image.
    pub env: Vec<(OsString, OsString)>,
    /// What `run` starts; its arguments follow.
    pub entrypoint: Vec<OsString>,
    /// Arguments, or the whole command where there is no entry point.
    pub cmd: Vec<OsString>,
    /// Where `run` starts it.
    pub working_dir: Option<PathBuf>,
    /// The account that the image would like; kept for `inspect`, never followed.
    pub user: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}
