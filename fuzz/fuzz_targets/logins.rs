//! Demands of registries and files of credentials.
#![no_main]

#[path = "../parsers/image.rs"]
#[allow(dead_code)]
mod parsers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| parsers::logins(input));
