//! The files that tell what a machine is.
#![no_main]

#[path = "../parsers/host.rs"]
#[allow(dead_code)]
mod parsers;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("the temporary folder can be written"));

fuzz_target!(|input: &[u8]| parsers::node(FOLDER.path(), input));
