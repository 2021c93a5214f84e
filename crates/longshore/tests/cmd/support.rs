//! What the end-to-end tests stand on: the binary, an ordinary user, an image made of busybox.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The account that the tests use when they are started as root.
const TEST_USER: &str = "longshore-test";

/// An ordinary user of this machine.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
}

/// The ordinary user: whoever runs the tests, or an account made for them when that is root.
pub(crate) fn user() -> &'static User {
    static USER: OnceLock<User> = OnceLock::new();
    USER.get_or_init(|| {
        let uid = rustix::process::geteuid().as_raw();
        if uid != 0 {
            return account(|fields| fields[2] == uid.to_string())
                .expect("the caller has an account");
        }
        let wanted = |fields: &[&str]| fields[0] == TEST_USER;
        account(wanted).unwrap_or_else(|| {
            let made = Command::new("useradd")
                .args(["--create-home", "--shell", "/bin/sh", TEST_USER])
                .output()
                .expect("root can run useradd");
            // Another test process may have been quicker; the look-up below decides.
            account(wanted).unwrap_or_else(|| panic!("useradd {TEST_USER} failed: {made:?}"))
        })
    })
}

fn account(wanted: impl Fn(&[&str]) -> bool) -> Option<User> {
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.len() >= 7 && wanted(&fields)).then(|| User {
            name: fields[0].to_owned(),
            uid: fields[2].parse().expect("a uid is a number"),
            gid: fields[3].parse().expect("a gid is a number"),
            home: fields[5].into(),
        })
    })
}

/// Whether the tests run as root, so that the same test can be made as root too.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says aloud that a test did not run, and why.
macro_rules! skip {
    ($($why:tt)*) => {{
        // The reason belongs into the log of the test run.
        #[allow(clippy::print_stderr)]
        { eprintln!("SKIPPED: {}", format_args!($($why)*)); }
        return;
    }};
}
pub(crate) use skip;

/// The full path of a program of the host, or `None` where it is not installed.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    std::env::split_paths("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Copies a program in a process of its own.
///
/// A descriptor that this process had open for writing would be inherited by whatever another test
/// starts in the meantime, and the program could not be executed: "Text file busy".
fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.expect("cp runs").success(), "{}", from.display());
}

/// A folder of the ordinary user that is removed with everything in it when the test ends.
pub(crate) struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// Makes an empty folder with `home/`, `cache/` and the binary in `bin/`.
    pub(crate) fn new() -> World {
        let folder = tempfile::Builder::new()
            .prefix("longshore-test-")
            .tempdir_in("/var/tmp")
            .expect("/var/tmp can be written");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("own folder");
        let world = World { folder };
        for name in ["home", "cache", "bin", "work"] {
            world.make_dir(name);
        }
        // The build folder may lie where the ordinary user cannot reach.
        copy_program(
            Path::new(env!("CARGO_BIN_EXE_longshore")),
            &world.path("bin/longshore"),
        );
        let own = user();
        chown(world.folder.path(), Some(own.uid), Some(own.gid)).expect("root or the owner");
        world
    }

    /// A path below the folder.
    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(below)
    }

    /// Makes a folder that belongs to the ordinary user.
    pub(crate) fn make_dir(&self, below: impl AsRef<Path>) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(&path).expect("own folder can be written");
        chown(&path, Some(user().uid), Some(user().gid)).expect("root or the owner");
        path
    }

    /// Writes a file that belongs to the ordinary user.
    pub(crate) fn write(&self, below: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(below);
        fs::write(&path, content).expect("own folder can be written");
        chown(&path, Some(user().uid), Some(user().gid)).expect("root or the owner");
        path
    }

    /// Any program of the host, as the ordinary user, with a small environment, in `work/`.
    pub(crate) fn host_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.surroundings(&mut command);
        if is_root() {
            command.uid(user().uid).gid(user().gid);
        }
        command
    }

    /// `longshore` as the ordinary user.
    pub(crate) fn longshore(&self) -> Command {
        self.host_command(self.path("bin/longshore"))
    }

    /// `longshore` as whoever runs the tests: root in CI.
    pub(crate) fn longshore_as_caller(&self) -> Command {
        let mut command = Command::new(self.path("bin/longshore"));
        self.surroundings(&mut command);
        command
    }

    fn surroundings(&self, command: &mut Command) {
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.path("home"))
            .env("USER", &user().name)
            .env("LANG", "C.UTF-8")
            .env("LONGSHORE_CACHEDIR", self.path("cache"))
            .current_dir(self.path("work"));
    }

    /// A sandbox directory `work/<name>` with busybox and its applets, or `None` (with a word on
    /// stderr) where the machine has no static busybox.
    pub(crate) fn busybox_rootfs(&self, name: &str) -> Option<PathBuf> {
        let busybox = program("busybox")?;
        let root = self.make_dir(Path::new("work").join(name));
        for folder in [
            "bin", "dev", "proc", "sys", "tmp", "var/tmp", "etc", "root", "home", "opt", "usr/bin",
        ] {
            fs::create_dir_all(root.join(folder)).expect("own folder");
        }
        copy_program(&busybox, &root.join("bin/busybox"));
        let applets = Command::new(root.join("bin/busybox"))
            .arg("--list")
            .output()
            .ok()?;
        for applet in String::from_utf8_lossy(&applets.stdout)
            .lines()
            .filter(|&applet| applet != "busybox")
        {
            let _ = symlink("busybox", root.join("bin").join(applet));
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("own folder");
        fs::write(root.join("etc/group"), "root:x:0:\n").expect("own folder");
        for file in ["resolv.conf", "hosts", "localtime"] {
            fs::write(root.join("etc").join(file), "").expect("own folder");
        }
        if is_root() {
            let owner = format!("{}:{}", user().uid, user().gid);
            let owned = Command::new("chown")
                .args(["-R", &owner])
                .arg(&root)
                .status();
            assert!(owned.expect("chown runs").success());
        }
        Some(root)
    }
}

/// What a command said, as text.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) status: Option<i32>,
}

/// Runs to the end and gives what was said, whatever the exit status.
pub(crate) fn say(command: &mut Command) -> Said {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program can be started");
    Said {
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
        status: status.code(),
    }
}

/// Runs to the end, expects success, gives stdout.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let said = say(command);
    assert_eq!(
        said.status,
        Some(0),
        "{command:?}\nstdout: {}\nstderr: {}",
        said.out,
        said.err
    );
    said.out
}
