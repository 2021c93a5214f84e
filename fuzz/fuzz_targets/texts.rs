//! Binds, mounts, variables and environment files.
#![no_main]

#[path = "../parsers/container.rs"]
#[allow(dead_code)]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| parsers::texts(input));
