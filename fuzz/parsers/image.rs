//! What reads text from outside about images. Shared by the fuzz targets and by a test of the
//! crate that runs the same functions on random input.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use longshore_image::{Bare, Digest, Document, ImageConfig, ImageRef, Platform};

/// References, digests and platforms: a registry's image means the same when it is written out.
pub(crate) fn references(input: &[u8]) {
    for bare in [Bare::Path, Bare::Registry] {
        let Ok(image) = ImageRef::parse(OsStr::from_bytes(input), bare) else {
            continue;
        };
        let shown = image.to_string();
        if let ImageRef::Registry(_) = image {
            let again = ImageRef::parse(OsStr::new(&shown), bare);
            assert_eq!(
                again.ok(),
                Some(image),
                "`{shown}` is read as something else"
            );
        }
    }
    if let Ok(text) = std::str::from_utf8(input) {
        if let Ok(digest) = Digest::parse(text) {
            assert_eq!(digest.to_string(), text);
        }
        let _ = Platform::parse(text);
    }
}

/// Manifests, indexes and configurations: JSON that a registry sends.
pub(crate) fn documents(input: &[u8]) {
    let _ = Document::parse(input, "fuzz");
    let _ = ImageConfig::parse(input, "fuzz");
}

/// What a registry demands, and the files in which other tools keep passwords. No helper is started:
/// the fuzzed text might name any.
pub(crate) fn logins(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        longshore_image::fuzzing::challenges(text);
    }
    longshore_image::fuzzing::credentials(input);
}
