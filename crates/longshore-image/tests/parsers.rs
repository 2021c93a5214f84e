//! A short run of what the fuzz targets `references`, `documents` and `logins` run for long.
#![allow(missing_docs)]

#[path = "../../../fuzz/parsers/image.rs"]
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

const REFERENCE: &[&str] = &[
    "docker:",
    "//",
    "/",
    ":",
    "@",
    "sha256:",
    "oci:",
    "oci-archive:",
    "docker-archive:",
    "a",
    "A",
    "0",
    ".",
    "..",
    "-",
    "_",
    "__",
    "localhost",
    ":5000",
    "docker.io",
    "library",
    "latest",
    "[::1]",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "linux/amd64",
    "v8",
    "\0",
];

const DOCUMENT: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"schemaVersion\":2",
    "\"schemaVersion\":1",
    "\"mediaType\":",
    "\"application/vnd.oci.image.manifest.v1+json\"",
    "\"application/vnd.oci.image.index.v1+json\"",
    "\"config\":",
    "\"layers\":",
    "\"manifests\":",
    "\"digest\":",
    "\"size\":",
    "-1",
    "1e99",
    "2",
    "\"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"",
    "null",
    "\"\"",
    "\"annotations\":{}",
    "\"platform\":",
    "\"rootfs\":",
    "\"diff_ids\":",
    "\"Env\":",
    "\"Cmd\":",
    "\"history\":[{}]",
    "\\u0000",
    "[[[[[[[[[[[[[[[[",
];

const LOGIN: &[&str] = &[
    "Bearer ",
    "Basic",
    "realm=",
    "scope=",
    "\"",
    "\\",
    ",",
    " ",
    "=",
    "{",
    "}",
    "\"auths\":",
    "\"host:5000\":",
    "\"https://index.docker.io/v1/\":",
    "\"auth\":",
    "\"YTpi\"",
    "\"YTp\"",
    "\"!\"",
    "\"identitytoken\":",
    "\"credHelpers\":",
    "\"credsStore\":",
    "\"a/b\"",
    "\"nosuch\"",
    "{\"auths\":{\"host:5000\":{\"auth\":\"YTpi\"}}}",
    "\u{e9}",
];

/// Sound documents, for damage.
const SOUND: [&str; 3] = [
    r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":2},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":3,"urls":["https://x/y"]}]}"#,
    r#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":7,"platform":{"os":"linux","architecture":"arm64","variant":"v8"}}]}"#,
    r#"{"architecture":"amd64","os":"linux","config":{"Env":["A=1"],"Entrypoint":["/e"],"Cmd":["c"],"WorkingDir":"/w","Labels":{"a":"b"}},"rootfs":{"type":"layers","diff_ids":["sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]},"history":[{"created_by":"x","empty_layer":true}]}"#,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_reference_is_read_or_refused(input in text(REFERENCE)) {
        parsers::references(&input);
    }

    #[test]
    fn any_document_is_read_or_refused(input in text(DOCUMENT)) {
        parsers::documents(&input);
    }

    #[test]
    fn any_demand_and_any_file_of_logins_is_read_or_refused(input in text(LOGIN)) {
        parsers::logins(&input);
    }

    #[test]
    fn damaged_documents_are_read_or_refused(
        which in 0..SOUND.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut input = SOUND[which].as_bytes().to_vec();
        for (at, byte) in damage {
            let at = at.index(input.len());
            input[at] = byte;
        }
        parsers::documents(&input);
        input.truncate(cut.index(input.len()));
        parsers::documents(&input);
    }
}

#[test]
fn json_inside_json_without_end_is_refused() {
    for unit in ["[", "{\"a\":", "{\"manifests\":["] {
        parsers::documents(unit.repeat(100_000).as_bytes());
    }
}
