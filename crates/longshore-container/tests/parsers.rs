//! A short run of what the fuzz targets `texts` and `image_files` run for long.
#![allow(missing_docs)]

#[path = "../../../fuzz/parsers/container.rs"]
mod parsers;

use proptest::prelude::*;

/// Pieces of which such texts are made, in any order, and now and then any byte.
fn text(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

const OPTION: &[&str] = &[
    "/a",
    "/b/../c",
    ":",
    ",",
    "ro",
    "rw",
    "image-src=",
    "id=1",
    "type=bind",
    "type=tmpfs",
    "source=",
    "src=",
    "destination=",
    "dst=",
    "target=",
    "size=",
    "99999999999999999999G",
    "\"",
    "\"\"",
    "=",
    "\\",
    "..",
    "hostfs",
    "bind-paths",
    "A=1",
    "B=",
    " ",
    "\n",
    "é",
];

const SCRIPT: &[&str] = &[
    "A", "B", "=", "export ", "unset ", "'", "\"", "$", "${", "}", "$A", "${A:-", "${A:+", "${#A}",
    "${A%", "${A##", "*", "`", "$(", "\\", "\n", ";", "#", " ", "~", ":", "if ", "then ", "fi",
    "test ", "[ ", " ]", "&&", "||", "x", "1", "PATH", ".", "<<EOF\n", "é",
];

const ACCOUNTS: &[&str] = &[
    "root",
    "alice",
    "x",
    ":",
    "::",
    "\n",
    "\n\n",
    "0",
    "1000",
    "1000:1000",
    "27",
    "alice:x:1000:1000::/:/bin/sh\n",
    "bob:x:1000:5::/:/bin/zsh\n",
    "\0",
    "99999999999999999999",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_of_an_option_is_read_or_refused(input in text(OPTION)) {
        parsers::texts(&input);
    }

    #[test]
    fn any_environment_file_is_read_or_refused(input in text(SCRIPT)) {
        parsers::texts(&input);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_account_file_and_script_of_an_image_gives_a_plan(
        accounts in text(ACCOUNTS),
        script in text(SCRIPT),
    ) {
        parsers::image_files(&accounts);
        parsers::image_files(&script);
    }
}
