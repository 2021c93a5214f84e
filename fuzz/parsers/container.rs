//! What reads text from outside about containers. Shared by the fuzz targets and by a test of the
//! crate that runs the same functions on random input.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longshore_container::{
    Action, ImageConfig, MountRequest, Omit, Origin, OverlayDir, Rootfs, RunSpec, Source, inspect,
    parse_env, parse_env_file, plan,
};
use longshore_host::Session;

fn session() -> Session {
    Session {
        uid: 1000,
        gid: 1000,
        groups: vec![1000, 27],
        user: "alice".into(),
        home: "/home/alice".into(),
        cwd: "/".into(),
        env: vec![("HOME".into(), "/home/alice".into())],
    }
}

/// Binds, mounts, variables and environment files, as options and variables give them.
pub(crate) fn texts(input: &[u8]) {
    let text = OsStr::from_bytes(input);
    let cwd = Path::new("/work");
    let _ = MountRequest::parse_binds(text, cwd);
    let _ = MountRequest::parse_mount(text, cwd);
    let _ = OverlayDir::parse(text);
    let _ = text.to_str().map(Omit::parse);
    let _ = parse_env(text, &Origin::File("fuzz".into()));
    if let Ok(variables) = parse_env_file(Path::new("fuzz"), input, &session()) {
        for variable in variables {
            assert!(!variable.name.is_empty());
            assert!(!variable.name.as_bytes().contains(&b'='));
        }
    }
}

/// An image's account files and environment scripts: the plan holds the caller's line once.
pub(crate) fn image_files(input: &[u8]) {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let root = folder.path();
    fs::create_dir_all(root.join("etc")).expect("own folder");
    fs::create_dir_all(root.join(".singularity.d/env")).expect("own folder");
    for file in [
        "etc/passwd",
        "etc/group",
        ".singularity.d/env/90-environment.sh",
    ] {
        fs::write(root.join(file), input).expect("own folder");
    }
    let rootfs = Rootfs {
        path: root.to_owned(),
        name: "fuzz".into(),
        config: ImageConfig::default(),
    };
    let spec = RunSpec::new(Action::Exec(vec!["true".into()]));
    let session = session();
    let Ok(facts) = inspect(&spec, &session, &rootfs) else {
        return;
    };
    let Ok(plan) = plan(&spec, &session, &rootfs, &facts) else {
        return;
    };
    for mount in &plan.mounts {
        let Source::Generated { content } = &mount.source else {
            continue;
        };
        if mount.target == Path::new("/etc/passwd") {
            let own = content
                .split(|&byte| byte == b'\n')
                .filter(|line| line.split(|&byte| byte == b':').nth(2) == Some(b"1000"))
                .count();
            assert_eq!(own, 1, "{}", content.escape_ascii());
        }
    }
}
