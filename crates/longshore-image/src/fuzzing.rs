//! Readers of foreign text that have no other way in from outside; for the fuzz targets alone.

use std::ffi::OsStr;
use std::path::Path;

use longshore_host::Session;

use crate::credentials;
use crate::reference::{Bare, ImageRef};
use crate::registry::challenge::Challenge;

/// Reads the value of a `WWW-Authenticate` header.
pub fn challenges(value: &str) {
    for challenge in Challenge::parse_all(value) {
        assert!(!challenge.scheme.is_empty());
        let _ = challenge.get("realm");
    }
}

/// Looks in the text of a configuration file for the credentials of some registries.
pub fn credentials(text: &[u8]) {
    let session = Session {
        uid: 1000,
        gid: 1000,
        groups: Vec::new(),
        user: "a".into(),
        home: "/".into(),
        cwd: "/".into(),
        // A text may name any program as its helper.
        env: vec![("PATH".into(), "/nonexistent".into())],
    };
    for name in ["docker://docker.io/library/a", "docker://host:5000/a/b/c:1"] {
        let Ok(ImageRef::Registry(image)) = ImageRef::parse(OsStr::new(name), Bare::Path) else {
            unreachable!("these are references");
        };
        let _ = credentials::from_config(&session, Path::new("/fuzz"), text, &image);
    }
}
