//! Paths and words of any bytes as text, for plans that are read by people and JSON readers.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

pub(crate) fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.to_string_lossy().serialize(serializer)
}

pub(crate) fn word<S: Serializer>(
    word: &std::ffi::OsStr,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    word.to_string_lossy().serialize(serializer)
}

pub(crate) fn words<S: Serializer>(words: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(words.len()))?;
    for word in words {
        let text: Cow<'_, str> = word.to_string_lossy();
        list.serialize_element(&text)?;
    }
    list.end()
}
