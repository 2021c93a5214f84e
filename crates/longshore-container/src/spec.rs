//! What the user asked for, checked, before anything of the machine or the image is known.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

/// A container to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// What is started in it.
    pub action: Action,
    /// Binds and temporary file systems that the user asked for, in order.
    pub mounts: Vec<MountRequest>,
    /// Places that get an empty directory each.
    pub scratch: Vec<PathBuf>,
    /// Host directory that holds scratch directories, and `/tmp`, `/var/tmp` and home of a
    /// contained container.
    pub workdir: Option<PathBuf>,
    /// A minimal `/dev`, and empty `/tmp`, `/var/tmp` and home.
    pub contain: bool,
    /// The home directory inside.
    pub home: Home,
    /// Default mounts that are left out.
    pub no_mount: Vec<Omit>,
    /// Where the program starts.
    pub cwd: Option<PathBuf>,
    /// Namespaces besides the mount namespace.
    pub isolate: Isolate,
    /// Name of the host inside; implies a UTS namespace.
    pub hostname: Option<OsString>,
    /// Name servers in place of the host's.
    pub dns: Vec<String>,
    /// Who the program is.
    pub identity: Identity,
    /// Nothing of the caller's environment goes in, but for the terminal and proxies.
    pub clean_env: bool,
    /// Variables for the inside, later ones win.
    pub env: Vec<EnvRequest>,
    /// Names of host variables that stay outside.
    pub no_env: Vec<OsString>,
    /// What can be written at `/`.
    pub writable: Writable,
    /// Directories with `upper/` and `work/` that are laid over the image, lowest first.
    pub overlays: Vec<OverlayDir>,
    /// Start with umask 022 in place of the caller's.
    pub default_umask: bool,
    /// What each file system in memory may take, where nothing else is asked for; the kernel's own
    /// limit is half of the node's memory.
    pub memory_bytes: Option<u64>,
}

impl RunSpec {
    /// Whether some file system that the program can write lies in memory.
    pub fn writes_to_memory(&self) -> bool {
        let asked = |mount: &MountRequest| matches!(mount, MountRequest::Tmpfs { .. });
        self.contain
            || self.isolate.ipc
            || self.writable == Writable::Tmpfs
            || !self.scratch.is_empty()
            || self.mounts.iter().any(asked)
    }

    /// The container that the defaults make for `action`.
    pub fn new(action: Action) -> RunSpec {
        RunSpec {
            action,
            mounts: Vec::new(),
            scratch: Vec::new(),
            workdir: None,
            contain: false,
            home: Home::Own,
            no_mount: Vec::new(),
            cwd: None,
            isolate: Isolate::default(),
            hostname: None,
            dns: Vec::new(),
            identity: Identity::default(),
            clean_env: false,
            env: Vec::new(),
            no_env: Vec::new(),
            writable: Writable::ReadOnly,
            overlays: Vec::new(),
            default_umask: false,
            memory_bytes: None,
        }
    }
}

/// What is started in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A program with its arguments.
    Exec(Vec<OsString>),
    /// The image's own program, with these arguments.
    Run(Vec<OsString>),
    /// An interactive shell: this one, else `bash`, else `sh`; with these arguments.
    Shell(Option<OsString>, Vec<OsString>),
    /// Nothing but the container, held open until it is stopped; the image's start script, if
    /// it has one, gets these arguments.
    Start(Vec<OsString>),
}

impl Action {
    /// The word of the command line for it.
    pub fn word(&self) -> &'static str {
        match self {
            Action::Exec(_) => "exec",
            Action::Run(_) => "run",
            Action::Shell(..) => "shell",
            Action::Start(_) => "start",
        }
    }
}

/// The home directory inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// The caller's, at the same place.
    Own,
    /// None is mounted.
    None,
    /// This directory of the host, at this place.
    At {
        /// On the host.
        source: PathBuf,
        /// Inside.
        target: PathBuf,
    },
}

/// A default mount that can be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Omit {
    /// `/proc`
    Proc,
    /// `/sys`
    Sys,
    /// `/dev`
    Dev,
    /// `/dev/pts` of a minimal `/dev`
    Devpts,
    /// The home directory
    Home,
    /// `/tmp` and `/var/tmp`
    Tmp,
    /// The current directory
    Cwd,
    /// Every file that is bound by default, such as `/etc/hosts`
    BindPaths,
    /// One of those, by its path
    Path(PathBuf),
}

impl Omit {
    /// Reads one word of `--no-mount`.
    ///
    /// # Errors
    ///
    /// [`SpecError::NoMount`] names what could be left out.
    pub fn parse(word: &str) -> Result<Omit, SpecError> {
        Ok(match word {
            "proc" => Omit::Proc,
            "sys" => Omit::Sys,
            "dev" => Omit::Dev,
            "devpts" => Omit::Devpts,
            "home" => Omit::Home,
            "tmp" => Omit::Tmp,
            "cwd" => Omit::Cwd,
            "bind-paths" => Omit::BindPaths,
            // Other file systems of the host are never mounted by default.
            "hostfs" => Omit::Path(PathBuf::from("/")),
            path if path.starts_with('/') => Omit::Path(clean(Path::new(path))),
            other => return Err(SpecError::NoMount(other.to_owned())),
        })
    }
}

/// How the process namespace is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pids {
    /// The host's.
    #[default]
    Shared,
    /// An own one, whose first process reaps orphans and passes signals on.
    WithInit,
    /// An own one, in which the program itself is the first process.
    WithoutInit,
}

/// Namespaces besides the mount namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolate {
    /// Process ids.
    pub pids: Pids,
    /// System V IPC and POSIX message queues.
    pub ipc: bool,
    /// No network but loopback.
    pub net: bool,
    /// Host name.
    pub uts: bool,
    /// A user namespace although the caller is root and needs none.
    pub user: bool,
}

/// Who the program is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Appear as root, over a mapping of ids.
    pub fakeroot: bool,
    /// As root: start as this user.
    pub uid: Option<u32>,
    /// As root: start with these groups, the first as the primary one.
    pub gids: Vec<u32>,
    /// As root: which capabilities the program keeps.
    pub privileges: Privileges,
}

/// Which capabilities a root's container keeps of those that its caller has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// Start from nothing instead of from all that the caller has.
    pub none: bool,
    /// Added, by name, as `CAP_NET_RAW`.
    pub add: Vec<String>,
    /// Taken away, by name.
    pub drop: Vec<String>,
}

/// What can be written at `/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writable {
    /// Nothing.
    #[default]
    ReadOnly,
    /// The image directory itself.
    InPlace,
    /// A layer in memory that is gone with the container.
    Tmpfs,
}

/// A directory laid over the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayDir {
    /// The directory that holds `upper` and `work`.
    pub path: PathBuf,
    /// Nothing is written to it.
    pub read_only: bool,
}

impl OverlayDir {
    /// Reads `DIR[:ro]`.
    pub fn parse(text: &OsStr) -> OverlayDir {
        let bytes = text.as_bytes();
        let (path, read_only) = match bytes {
            [path @ .., b':', b'r', b'o'] => (path, true),
            [path @ .., b':', b'r', b'w'] => (path, false),
            path => (path, false),
        };
        OverlayDir {
            path: PathBuf::from(OsStr::from_bytes(path)),
            read_only,
        }
    }
}

/// A variable for the inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvRequest {
    /// Its name.
    pub name: OsString,
    /// Its value, byte for byte.
    pub value: OsString,
    /// Where it was asked for.
    pub origin: Origin,
}

/// Who gave a variable of the container its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The caller's environment.
    Host,
    /// The image's configuration.
    Image,
    /// A script under `/.singularity.d/env`.
    ImageScript(String),
    /// `--env`
    Option,
    /// `--env-file`
    File(String),
    /// A variable of the caller such as `APPTAINERENV_X`.
    Prefixed(String),
    /// Longshore itself.
    Longshore,
}

/// A mount that the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountRequest {
    /// A directory or file of the host.
    Bind {
        /// On the host, absolute.
        source: PathBuf,
        /// Inside, absolute.
        target: PathBuf,
        /// Nothing can be written through it.
        read_only: bool,
    },
    /// An empty file system in memory.
    Tmpfs {
        /// Inside, absolute.
        target: PathBuf,
        /// Its limit; the kernel's default is half of the memory.
        size_bytes: Option<u64>,
    },
}

/// The command line asks for something that has no meaning.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    /// An empty path where one is needed.
    #[error("`{0}` names no path")]
    NoPath(String),
    /// A target that is not absolute.
    #[error("`{0}` must be an absolute path inside the container")]
    NotAbsolute(String),
    /// A target at the root of the container.
    #[error("`{0}` would hide the whole image; a bind needs a place below `/`")]
    Root(String),
    /// A bind option that is not known.
    #[error("`{option}` is no bind option (in `{text}`); there are `ro` and `rw`")]
    BindOption {
        /// The option.
        option: String,
        /// The whole bind.
        text: String,
    },
    /// A part of an image as the source of a bind.
    #[error("`{0}`: binding from inside of an image file is not possible yet")]
    ImageSource(String),
    /// A key of `--mount` that is not known or misses its value.
    #[error(
        "`{key}` has no meaning in `--mount {text}`; there are type, source, destination, ro and size"
    )]
    MountKey {
        /// The key.
        key: String,
        /// The whole argument.
        text: String,
    },
    /// A `--mount` without a part that it needs.
    #[error("`--mount {text}` names no {what}")]
    MountMisses {
        /// The whole argument.
        text: String,
        /// The missing part.
        what: &'static str,
    },
    /// A kind of mount that is not known.
    #[error("`{kind}` is no type of mount (in `--mount {text}`); there are `bind` and `tmpfs`")]
    MountType {
        /// The kind.
        kind: String,
        /// The whole argument.
        text: String,
    },
    /// A word of `--no-mount` that is not known.
    #[error(
        "`{0}` is no default mount; there are proc, sys, dev, devpts, home, tmp, cwd, hostfs, bind-paths and absolute paths"
    )]
    NoMount(String),
    /// A size that cannot be read.
    #[error("`{0}` is no size; write a number with K, M or G")]
    Size(String),
}

impl MountRequest {
    /// Reads a comma list of `source[:target[:options]]`, as `--bind` and `APPTAINER_BIND` take it.
    ///
    /// A part without a colon that is `ro` or `rw` belongs to the bind before it
    /// (`a:b:ro,rw` is one bind). A relative source is taken from `cwd`.
    ///
    /// # Errors
    ///
    /// What cannot be a bind, with the text that was given.
    pub fn parse_binds(text: &OsStr, cwd: &Path) -> Result<Vec<MountRequest>, SpecError> {
        let mut binds: Vec<Vec<u8>> = Vec::new();
        for part in text.as_bytes().split(|&byte| byte == b',') {
            match binds.last_mut() {
                Some(before) if is_bind_option(part) && before.contains(&b':') => {
                    before.push(b',');
                    before.extend_from_slice(part);
                }
                _ if part.is_empty() => {}
                _ => binds.push(part.to_vec()),
            }
        }
        binds
            .iter()
            .map(|bind| MountRequest::parse_bind(bind, cwd))
            .collect()
    }

    fn parse_bind(text: &[u8], cwd: &Path) -> Result<MountRequest, SpecError> {
        let shown = || String::from_utf8_lossy(text).into_owned();
        let mut parts = text.splitn(3, |&byte| byte == b':');
        let source = parts.next().unwrap_or_default();
        if source.is_empty() {
            return Err(SpecError::NoPath(shown()));
        }
        let source = absolute(Path::new(OsStr::from_bytes(source)), cwd);
        let target = match parts.next() {
            None | Some(b"") => source.clone(),
            Some(target) => PathBuf::from(OsStr::from_bytes(target)),
        };
        let mut read_only = false;
        for option in parts.next().unwrap_or_default().split(|&byte| byte == b',') {
            match option {
                b"" => {}
                b"ro" => read_only = true,
                b"rw" => read_only = false,
                option if option.starts_with(b"image-src=") || option.starts_with(b"id=") => {
                    return Err(SpecError::ImageSource(shown()));
                }
                // Options of Docker for systems with labels; nothing is relabelled here.
                b"z" | b"Z" | b"delegated" | b"cached" | b"consistent" => {}
                option => {
                    return Err(SpecError::BindOption {
                        option: String::from_utf8_lossy(option).into_owned(),
                        text: shown(),
                    });
                }
            }
        }
        Ok(MountRequest::Bind {
            source,
            target: checked_target(&target)?,
            read_only,
        })
    }

    /// Reads `type=bind,source=…,destination=…[,ro]` or `type=tmpfs,destination=…[,size=…]`.
    ///
    /// A field that holds a comma is written in double quotes, as in CSV.
    ///
    /// # Errors
    ///
    /// What cannot be a mount, with the text that was given.
    pub fn parse_mount(text: &OsStr, cwd: &Path) -> Result<MountRequest, SpecError> {
        let shown = || text.to_string_lossy().into_owned();
        let (mut kind, mut source, mut target) = (None, None, None);
        let (mut read_only, mut size_bytes) = (false, None);
        for field in csv_fields(text.as_bytes()) {
            let (key, value) = match field.iter().position(|&byte| byte == b'=') {
                Some(at) => (&field[..at], Some(&field[at + 1..])),
                None => (&field[..], None),
            };
            let path = value.map(|value| PathBuf::from(OsStr::from_bytes(value)));
            match (key, value) {
                (b"type", Some(value)) => kind = Some(value.to_vec()),
                (b"source" | b"src", Some(_)) => source = path,
                (b"destination" | b"dst" | b"target", Some(_)) => target = path,
                (b"ro" | b"readonly", None | Some(b"true" | b"1")) => read_only = true,
                (b"ro" | b"readonly", Some(b"false" | b"0")) | (b"rw", None) => read_only = false,
                (b"size" | b"tmpfs-size", Some(value)) => {
                    size_bytes = Some(parse_size(&String::from_utf8_lossy(value))?);
                }
                (b"image-src" | b"id", Some(_)) => return Err(SpecError::ImageSource(shown())),
                (b"bind-propagation" | b"consistency", Some(_)) | (b"nonested", None) => {}
                (key, _) => {
                    return Err(SpecError::MountKey {
                        key: String::from_utf8_lossy(key).into_owned(),
                        text: shown(),
                    });
                }
            }
        }
        let misses = |what| SpecError::MountMisses {
            text: shown(),
            what,
        };
        match kind.as_deref() {
            Some(b"bind") => {
                let source = source.ok_or_else(|| misses("source"))?;
                let source = absolute(&source, cwd);
                let target = target.ok_or_else(|| misses("destination"))?;
                Ok(MountRequest::Bind {
                    source,
                    target: checked_target(&target)?,
                    read_only,
                })
            }
            Some(b"tmpfs") => Ok(MountRequest::Tmpfs {
                target: checked_target(&target.ok_or_else(|| misses("destination"))?)?,
                size_bytes,
            }),
            Some(kind) => Err(SpecError::MountType {
                kind: String::from_utf8_lossy(kind).into_owned(),
                text: shown(),
            }),
            None => Err(misses("type")),
        }
    }
}

fn is_bind_option(part: &[u8]) -> bool {
    matches!(part, b"ro" | b"rw") || part.starts_with(b"image-src=") || part.starts_with(b"id=")
}

/// The fields of one line of CSV; a doubled quote inside quotes is one quote.
fn csv_fields(line: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = vec![Vec::new()];
    let mut quoted = false;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let field = fields.last_mut().expect("there is always a field");
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' => quoted = !quoted,
            b',' if !quoted => fields.push(Vec::new()),
            byte => field.push(byte),
        }
    }
    fields.retain(|field| !field.is_empty());
    fields
}

fn parse_size(text: &str) -> Result<u64, SpecError> {
    let wrong = || SpecError::Size(text.to_owned());
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// A place inside the container, checked and without `.` and `..`.
///
/// # Errors
///
/// [`SpecError::NotAbsolute`] and [`SpecError::Root`].
pub fn checked_target(path: &Path) -> Result<PathBuf, SpecError> {
    let shown = || path.to_string_lossy().into_owned();
    if !path.is_absolute() {
        return Err(SpecError::NotAbsolute(shown()));
    }
    let target = clean(path);
    if target == Path::new("/") {
        return Err(SpecError::Root(shown()));
    }
    Ok(target)
}

/// `path` taken from `base`, without `.` and `..` in it.
pub fn absolute(path: &Path, base: &Path) -> PathBuf {
    // `..` of the host may cross a symbolic link, so only the kernel may resolve it.
    if path.components().any(|part| part == Component::ParentDir) {
        return base.join(path);
    }
    clean(&base.join(path))
}

/// An absolute path without `.`, `..`, doubled and trailing slashes, by its letters alone.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => cleaned.push(name),
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(source: &str, target: &str, read_only: bool) -> MountRequest {
        MountRequest::Bind {
            source: source.into(),
            target: target.into(),
            read_only,
        }
    }

    fn binds(text: &str) -> Result<Vec<MountRequest>, SpecError> {
        MountRequest::parse_binds(OsStr::new(text), Path::new("/work"))
    }

    #[test]
    fn a_comma_list_of_binds_keeps_options_with_their_bind() {
        assert_eq!(
            binds("/a,/b:/c:ro,rw,d:/e"),
            Ok(vec![
                bind("/a", "/a", false),
                bind("/b", "/c", false),
                bind("/work/d", "/e", false),
            ])
        );
        assert_eq!(binds("/a:/b:ro"), Ok(vec![bind("/a", "/b", true)]));
    }

    #[test]
    fn a_bind_that_has_no_meaning_is_refused_with_its_text() {
        assert_eq!(binds(":/b"), Err(SpecError::NoPath(":/b".into())));
        assert_eq!(binds("/a:b"), Err(SpecError::NotAbsolute("b".into())));
        assert_eq!(binds("/a:/"), Err(SpecError::Root("/".into())));
        assert!(matches!(
            binds("/a:/b:sync"),
            Err(SpecError::BindOption { .. })
        ));
    }

    #[test]
    fn a_mount_may_hold_colons_and_quoted_commas() {
        let text = OsStr::new("type=bind,\"source=/a,b:c\",target=/d,readonly");
        assert_eq!(
            MountRequest::parse_mount(text, Path::new("/")),
            Ok(bind("/a,b:c", "/d", true))
        );
        let text = OsStr::new("type=tmpfs,dst=/t,size=2M");
        assert_eq!(
            MountRequest::parse_mount(text, Path::new("/")),
            Ok(MountRequest::Tmpfs {
                target: "/t".into(),
                size_bytes: Some(2 << 20)
            })
        );
    }

    #[test]
    fn a_mount_without_a_type_or_with_an_unknown_key_is_refused() {
        let parse = |text: &str| MountRequest::parse_mount(OsStr::new(text), Path::new("/"));
        assert!(matches!(
            parse("source=/a,target=/b"),
            Err(SpecError::MountMisses { what: "type", .. })
        ));
        assert!(matches!(
            parse("type=bind,source=/a,target=/b,colour=red"),
            Err(SpecError::MountKey { .. })
        ));
        assert!(matches!(
            parse("type=volume,source=/a,target=/b"),
            Err(SpecError::MountType { .. })
        ));
    }
}
