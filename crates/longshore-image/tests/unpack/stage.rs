//! A tree to unpack into, with a canary beside it that must stay as it is.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use longshore_image::{Limits, TreeSummary, UnpackError, Unpacker};

/// Whether the tests run as root: owners are kept then, and no mode is opened.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    canary_before: String,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let folder = tempfile::Builder::new()
            .prefix("longshore-unpack-")
            .tempdir()
            .expect("the temporary folder can be written");
        let canary = folder.path().join("canary");
        fs::create_dir(&canary).expect("own folder");
        fs::create_dir(canary.join("sub")).expect("own folder");
        fs::write(canary.join("file"), "chirp").expect("own folder");
        fs::set_permissions(canary.join("file"), fs::Permissions::from_mode(0o640)).expect("own");
        symlink("file", canary.join("link")).expect("own folder");
        fs::create_dir(folder.path().join("root")).expect("own folder");
        let mut stage = Stage {
            folder,
            canary_before: String::new(),
        };
        stage.canary_before = stage.canary_now();
        stage
    }

    /// The root of the tree.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A path in the canary, absolute, as an archive that knows the machine would name it.
    pub(crate) fn canary(&self, below: &str) -> String {
        let path = self.folder.path().join("canary").join(below);
        path.to_str().expect("an ASCII path").to_owned()
    }

    /// Unpacks layers with the given limits; the canary is checked whatever the result.
    pub(crate) fn unpack_within(
        &self,
        limits: Limits,
        layers: &[Vec<u8>],
    ) -> Result<TreeSummary, UnpackError> {
        let result = (|| {
            let mut unpacker = Unpacker::new(&self.root(), limits)?;
            for (index, layer) in layers.iter().enumerate() {
                unpacker.layer(&format!("layer-{}", index + 1), layer.as_slice())?;
            }
            unpacker.finish()
        })();
        self.assert_canary();
        result
    }

    pub(crate) fn unpack(&self, layers: &[Vec<u8>]) -> Result<TreeSummary, UnpackError> {
        self.unpack_within(Limits::default(), layers)
    }

    /// What is in the tree, a line for each name.
    pub(crate) fn listing(&self) -> String {
        let mut listing = String::new();
        list(&self.root(), &self.root(), &mut listing, false);
        listing
    }

    /// Fails when anything beside the tree has changed.
    #[track_caller]
    pub(crate) fn assert_canary(&self) {
        assert_eq!(self.canary_now(), self.canary_before, "the canary changed");
        let mut beside: Vec<_> = fs::read_dir(self.folder.path())
            .expect("own folder")
            .map(|entry| entry.expect("own folder").file_name())
            .collect();
        beside.sort();
        assert_eq!(
            beside,
            ["canary", "root"],
            "something appeared beside the tree"
        );
    }

    fn canary_now(&self) -> String {
        let mut listing = String::new();
        let canary = self.folder.path().join("canary");
        list(&canary, &canary, &mut listing, true);
        listing
    }
}

fn list(root: &Path, folder: &Path, listing: &mut String, is_exact: bool) {
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("the folder can be read")
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    names.sort();
    for path in names {
        let meta = path.symlink_metadata().expect("it was just listed");
        let name = path.strip_prefix(root).expect("it is below");
        let name = name.as_os_str().as_bytes().escape_ascii();
        let mode = meta.mode() & 0o7777;
        let kind = meta.file_type();
        let _ = if kind.is_dir() {
            write!(listing, "{name}/ {mode:o}")
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).expect("it is a link");
            write!(
                listing,
                "{name} -> {}",
                target.as_os_str().as_bytes().escape_ascii()
            )
        } else if kind.is_fifo() {
            write!(listing, "{name} fifo {mode:o}")
        } else if kind.is_file() {
            match fs::read(&path) {
                Ok(data) if data.len() < 100 => {
                    write!(listing, "{name} {mode:o} \"{}\"", data.escape_ascii())
                }
                Ok(data) => write!(listing, "{name} {mode:o} {} bytes", data.len()),
                Err(error) => write!(listing, "{name} {mode:o} {error}"),
            }
        } else {
            write!(listing, "{name} of a kind that nobody asked for: {kind:?}")
        };
        if is_exact {
            let _ = write!(
                listing,
                " {}:{} {} {}.{}",
                meta.uid(),
                meta.gid(),
                meta.nlink(),
                meta.mtime(),
                meta.mtime_nsec(),
            );
        }
        listing.push('\n');
        if kind.is_dir() {
            list(root, &path, listing, is_exact);
        }
    }
}

/// Unpacks and compares the tree with what it should be, one line a name.
#[track_caller]
pub(crate) fn check(layers: &[Vec<u8>], expected: &str) -> TreeSummary {
    let stage = Stage::new();
    let summary = match stage.unpack(layers) {
        Ok(summary) => summary,
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    };
    assert_eq!(stage.listing(), unindented(expected));
    summary
}

/// Unpacks what must be refused, with words that contain `reason`.
#[track_caller]
pub(crate) fn check_refused(layers: &[Vec<u8>], reason: &str) {
    let stage = Stage::new();
    let error = stage.unpack(layers).expect_err("this must be refused");
    let text = error.to_string();
    assert!(text.contains(reason), "`{text}` does not say `{reason}`");
    assert!(text.contains("layer-"), "`{text}` does not name the layer");
    assert!(!error.hint().is_empty());
}

pub(crate) fn unindented(text: &str) -> String {
    let mut lines = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        lines.push_str(line);
        lines.push('\n');
    }
    lines
}
