//! A short run of what the fuzz target `studies` runs for long.
#![allow(missing_docs)]

#[path = "../../../fuzz/parsers/study.rs"]
mod parsers;

use proptest::prelude::*;

/// Pieces of which such texts are made, in any order, and now and then any byte.
fn text(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

const STUDY: &[&str] = &[
    "[study]\n",
    "name = \"a\"\n",
    "question = \"b\"\n",
    "[workload]\n",
    "kind = \"command\"\n",
    "command = \"true\"\n",
    "size = 1\n",
    "[axes]\n",
    "where = [\"host\", \"container\"]\n",
    "[run]\n",
    "rounds = 3\n",
    "rounds = -1\n",
    "budget = \"75 s\"\n",
    "reference = { where = \"host\" }\n",
    "[[expect]]\n",
    "metric = \"wall\"\n",
    "value = \"50 ms\"\n",
    "value = \"1e999 GiB/s\"\n",
    "when = { where = \"container\" }\n",
    "tolerance = \"+3 %\"\n",
    "ceiling = \"0.9\"\n",
    "why = \"c\"\n",
    "\"",
    "=",
    "[",
    "]",
    "\n",
    "#",
    "\u{e9}",
    "5 ms",
    "1.5",
    " ",
];

const SAMPLES: &[&str] = &[
    "{",
    "}",
    "\n",
    "\"type\":\"sample\"",
    "\"type\":\"probe\"",
    ",",
    "\"value\":",
    "1e400",
    "-1",
    "null",
    "\"variant\":{}",
    "\"round\":0",
    "\"metric\":\"wall\"",
    "[",
    "]",
];

/// The studies that come with the program, for damage.
const SOUND: [&str; 2] = [
    include_str!("../../../studies/quickstart.toml"),
    include_str!("../../../studies/start-up.toml"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_study_file_is_read_or_refused(input in text(STUDY)) {
        parsers::study(&input);
    }

    #[test]
    fn damaged_study_files_are_read_or_refused(
        which in 0..SOUND.len(),
        at in any::<prop::sample::Index>(),
        put in text(STUDY),
    ) {
        let mut input = SOUND[which].as_bytes().to_vec();
        let at = at.index(input.len());
        input.splice(at..at, put);
        parsers::study(&input);
        input.truncate(at);
        parsers::study(&input);
    }

    #[test]
    fn any_samples_of_an_earlier_result_are_read_or_refused(input in text(SAMPLES)) {
        let folder = tempfile::tempdir().expect("the temporary folder can be written");
        parsers::samples(folder.path(), &input);
    }
}
