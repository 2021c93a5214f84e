//! Everything here once more as an ordinary user, where the tests are started as root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::stage::is_root;

/// The account that owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    if !is_root() {
        // The other tests of this run are that already.
        return;
    }
    // The build folder may lie where an ordinary user cannot reach.
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("own folder");
    let program = folder.path().join("unpack");
    fs::copy(std::env::current_exe().expect("it runs"), &program).expect("own folder");
    let tmp = folder.path().join("tmp");
    fs::create_dir(&tmp).expect("own folder");
    chown(&tmp, Some(NOBODY), Some(NOBODY)).expect("root can give it away");
    let said = Command::new(program)
        // What takes long and asks the file system for little is left out.
        .args(["--test-threads", "2", "--skip", "a_million_headers"])
        .env("TMPDIR", &tmp)
        .current_dir(&tmp)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("the copy can be run");
    assert!(
        said.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr)
    );
}
