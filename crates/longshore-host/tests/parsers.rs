//! A short run of what the fuzz target `nodes` runs for long.
#![allow(missing_docs)]

#[path = "../../../fuzz/parsers/host.rs"]
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

const NODE: &[&str] = &[
    "\u{1e}",
    "\u{1e}\u{1e}",
    "processor\t: 0\n",
    "physical id\t: 0\n",
    "MemTotal: 12 kB\n",
    "Seccomp:\t2\n",
    "0::/a/../b\n",
    "4:memory:/x\n",
    "1 2 0:3 / / rw - tmpfs none rw\n",
    "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 c rw\n",
    "\\040\\",
    "0 1000 1\n",
    "4294967295",
    "0",
    "-1",
    "ID=debian\n",
    "a:100000:65536\n",
    "a:x:1000:1000::/home/a:/bin/sh\n",
    "0-3,8",
    "7-",
    "max 100000\n",
    "150000 100000\n",
    "4.18.0",
    "{\"devices\":[]}",
    "SLURM_JOB_ID=1\n",
    "OMPI_COMM_WORLD_RANK=0\n",
    "100 Gb/sec (4X EDR)\n",
    ":",
    " ",
    "\n",
    "99999999999999999999",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_files_of_a_node_give_answers(input in text(NODE)) {
        let folder = tempfile::tempdir().expect("the temporary folder can be written");
        parsers::node(folder.path(), &input);
    }
}
