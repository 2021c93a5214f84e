//! What reads study files and the samples of earlier results. Shared by the fuzz target and by a test
//! of the crate that runs the same functions on random input.

use std::fs;
use std::path::Path;

use longshore_study::{Quantity, ResultFolder, Study, WorkloadKind, parse_duration};

const KINDS: &[WorkloadKind] = &[WorkloadKind {
    name: "command",
    keys: &["command", "size"],
}];

/// A study file: an error points into the text, and what is read is read the same again.
pub(crate) fn study(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let _ = parse_duration(text);
    let _ = Quantity::parse(text);
    match Study::parse("fuzz", text, KINDS) {
        Ok(study) => {
            let again = Study::parse("fuzz", &study.text, KINDS).expect("it was read before");
            assert_eq!(again, study);
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            // The end of the text is a place too: an array may be open there.
            assert!(error.line <= text.split('\n').count(), "{error:?}");
            // It is shown with a mark below the place.
            assert!(!error.to_string().is_empty());
        }
    }
}

/// The samples of a result, as a killed study or another version left them.
pub(crate) fn samples(folder: &Path, input: &[u8]) {
    fs::write(folder.join("samples.jsonl"), input).expect("own folder");
    let _ = ResultFolder::open(folder).records();
}
