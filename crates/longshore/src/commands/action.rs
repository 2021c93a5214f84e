//! What `exec`, `run`, `shell` and `instance start` share: their options, and the way from options
//! to a running container.
//!
//! Names, short forms and meanings are Apptainer's. Each option can also be given as a variable,
//! `LONGSHORE_NAME`, `APPTAINER_NAME` or `SINGULARITY_NAME`; the first that is set counts, and the
//! command line beats all of them, but for binds, which add up.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use longshore_container::{
    Action, EnvRequest, Home, Identity, InspectError, Isolate, MountRequest, Omit, Origin, Outcome,
    OverlayDir, Pids, PlanError, Privileges, Rootfs, RunPlan, RunSpec, SpecError, StartError, Told,
    Writable, absolute, checked_target, parse_env, parse_env_file,
};
use longshore_host::Session;

use crate::commands::image_source::{self, ImageOptions};
use crate::commands::{instance, plan_text};
use crate::error::{CommandError, DONE, Kind, Status};
use crate::ui::Ui;

/// Options of everything that starts a container
#[derive(Args, Clone, Debug, Default)]
// As with Apptainer, an option may come twice: wrappers put theirs before the user's.
#[command(args_override_self = true)]
pub(crate) struct ActionOptions {
    /// Show what would be done, and stop
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: as one JSON object
    #[arg(long, requires = "dry_run")]
    json: bool,

    /// Bring a directory or file of the host in: SRC[:DST[:ro]], more with commas (Docker: -v SRC:DST)
    #[arg(short = 'B', long, value_name = "SPEC", help_heading = "Files")]
    bind: Vec<OsString>,
    /// The same, for names that hold colons: type=bind,source=SRC,destination=DST[,ro] or type=tmpfs,destination=DST[,size=64M]
    #[arg(long, value_name = "SPEC", help_heading = "Files")]
    mount: Vec<OsString>,
    /// Keep the host out: minimal /dev, empty /tmp, /var/tmp and home
    #[arg(short, long, help_heading = "Files")]
    contain: bool,
    /// --contain, with own process ids and IPC, and a clean environment
    #[arg(short = 'C', long, help_heading = "Files")]
    containall: bool,
    /// Do not mount the home directory
    #[arg(long, help_heading = "Files")]
    no_home: bool,
    /// Leave default mounts out: proc, sys, dev, devpts, home, tmp, cwd, hostfs, bind-paths, or a path
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Files"
    )]
    no_mount: Vec<String>,
    /// Home directory: SRC[:DST]
    #[arg(short = 'H', long, value_name = "SPEC", help_heading = "Files")]
    home: Option<OsString>,
    /// Start in this directory of the container (Docker: -w DIR)
    #[arg(
        long,
        visible_alias = "cwd",
        value_name = "DIR",
        help_heading = "Files"
    )]
    pwd: Option<PathBuf>,
    /// An empty directory at DIR, gone with the container unless --workdir keeps it
    #[arg(
        short = 'S',
        long,
        value_name = "DIR",
        value_delimiter = ',',
        help_heading = "Files"
    )]
    scratch: Vec<PathBuf>,
    /// Host directory that keeps scratch directories, and /tmp, /var/tmp and home of --contain
    #[arg(short = 'W', long, value_name = "DIR", help_heading = "Files")]
    workdir: Option<PathBuf>,
    /// Write to the image directory itself
    #[arg(short, long, help_heading = "Files")]
    writable: bool,
    /// Write to memory that is gone with the container
    #[arg(long, help_heading = "Files")]
    writable_tmpfs: bool,
    /// Lay DIR[:ro], which holds upper/ and work/, over the image
    #[arg(
        short,
        long,
        value_name = "DIR",
        value_delimiter = ',',
        help_heading = "Files"
    )]
    overlay: Vec<OsString>,

    /// Pass nothing of the caller's environment but the terminal and proxies (Docker: -e NAME=value sets a variable)
    #[arg(short = 'e', long, help_heading = "Environment")]
    cleanenv: bool,
    /// Set variables: NAME=value[,NAME=value]
    #[arg(long, value_name = "LIST", help_heading = "Environment")]
    env: Vec<OsString>,
    /// Set variables from a file of shell assignments; it is read, not run
    #[arg(long, value_name = "FILE", help_heading = "Environment")]
    env_file: Vec<PathBuf>,
    /// Variables of the caller that stay outside
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Environment"
    )]
    no_env: Vec<OsString>,
    /// One variable, commas and all: what `-e NAME=value` becomes
    #[arg(long, hide = true, value_name = "NAME=value")]
    env_exact: Vec<OsString>,
    /// Values are never run through a shell; accepted for Apptainer's sake
    #[arg(long, help_heading = "Environment")]
    no_eval: bool,
    /// Start with umask 0022 instead of the caller's
    #[arg(long, help_heading = "Environment")]
    no_umask: bool,

    /// Own process ids
    #[arg(short, long, help_heading = "Isolation")]
    pid: bool,
    /// Keep the host's process ids although --containall or --compat would not
    #[arg(long, conflicts_with = "pid", help_heading = "Isolation")]
    no_pid: bool,
    /// With --pid: the program itself is process 1
    #[arg(long, help_heading = "Isolation")]
    no_init: bool,
    /// Own IPC
    #[arg(short, long, help_heading = "Isolation")]
    ipc: bool,
    /// No network but loopback
    #[arg(short, long, help_heading = "Isolation")]
    net: bool,
    /// With --net: the kind of network; `none` is the only one that needs no privileges
    #[arg(long, value_name = "KIND", help_heading = "Isolation")]
    network: Option<String>,
    /// Own host name
    #[arg(long, help_heading = "Isolation")]
    uts: bool,
    /// Host name inside
    #[arg(long, value_name = "NAME", help_heading = "Isolation")]
    hostname: Option<OsString>,
    /// Name servers to ask inside
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Isolation"
    )]
    dns: Vec<String>,
    /// Behave like Docker: --containall --no-init --no-umask --no-eval --writable-tmpfs
    #[arg(long, help_heading = "Isolation")]
    compat: bool,

    /// Appear as root
    #[arg(short, long, help_heading = "Identity")]
    fakeroot: bool,
    /// Use a user namespace also as root
    #[arg(short, long, help_heading = "Identity")]
    userns: bool,
    /// As root: keep no capabilities
    #[arg(long, conflicts_with = "keep_privs", help_heading = "Identity")]
    no_privs: bool,
    /// As root: keep all capabilities (the default)
    #[arg(long, help_heading = "Identity")]
    keep_privs: bool,
    /// As root, with --no-privs: keep these capabilities
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Identity"
    )]
    add_caps: Vec<String>,
    /// As root: give these capabilities up
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Identity"
    )]
    drop_caps: Vec<String>,
    /// As root: uid:N and gid:N[:N…] to start as
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Identity"
    )]
    security: Vec<String>,

    #[command(flatten)]
    pub(crate) image: ImageOptions,
}

/// Rewrites Docker's spellings of options, where no other meaning is possible.
///
/// `-e NAME=value` sets a variable, while `-e` alone is Apptainer's `--cleanenv`; `-v a:b` binds;
/// `-w /dir` is the directory to start in, unless `/dir` holds an image; `--rm`, `-t` and `-it` change nothing, since
/// every container is gone when it ends and uses the caller's terminal.
pub(crate) fn understand_docker(arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(verb) = action_verb(&arguments) else {
        return arguments;
    };
    let is_docker = |word: &OsString| {
        matches!(
            word.as_bytes(),
            b"-e"
                | b"-v"
                | b"-w"
                | b"-t"
                | b"-it"
                | b"-ti"
                | b"--rm"
                | b"--tty"
                | b"--interactive"
                | b"--volume"
        )
    };
    if !arguments[verb..].iter().any(is_docker) {
        return arguments;
    }
    let takes_value = options_with_values();
    let mut words = arguments.into_iter();
    let mut rewritten: Vec<OsString> = words.by_ref().take(verb + 1).collect();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let next = words.peek().map(|next| next.as_bytes().to_vec());
        let next = next.as_deref().unwrap_or_default();
        let spelling = match word.as_bytes() {
            b"--rm" | b"-t" | b"-it" | b"-ti" | b"--tty" | b"--interactive" => continue,
            b"-e" if is_assignment(next) => "--env-exact",
            b"-v" if is_bind(next) => "--bind",
            b"--volume" => "--bind",
            b"-w" if next.starts_with(b"/") && !holds_image(Path::new(OsStr::from_bytes(next))) => {
                "--pwd"
            }
            text if text.starts_with(b"-") && text != b"-" => {
                let separate = takes_value.iter().any(|option| option.as_bytes() == text);
                rewritten.push(word);
                if separate {
                    rewritten.extend(words.next());
                }
                continue;
            }
            // From the image on, every word is the program's.
            _ => {
                rewritten.push(word);
                break;
            }
        };
        rewritten.push(spelling.into());
        rewritten.extend(words.next());
    }
    rewritten.extend(words);
    rewritten
}

/// Where `exec`, `run` or `shell` stands, if that is what is asked for.
fn action_verb(arguments: &[OsString]) -> Option<usize> {
    let first = arguments
        .iter()
        .skip(1)
        .position(|word| !word.as_bytes().starts_with(b"-"))?
        + 1;
    matches!(arguments[first].as_bytes(), b"exec" | b"run" | b"shell").then_some(first)
}

/// The status for a command line that was not understood: where a program was to be started, 2
/// would look like the program's own.
pub(crate) fn usage_status(arguments: &[OsString], error: &clap::Error) -> Status {
    if error.use_stderr() && action_verb(arguments).is_some() {
        return CommandError::new(Kind::NotStarted, "wrong usage").status();
    }
    Status(u8::try_from(error.exit_code()).unwrap_or(1))
}

/// The options above whose value is a word of its own.
fn options_with_values() -> Vec<String> {
    let command = ActionOptions::augment_args(clap::Command::new("action"));
    command
        .get_arguments()
        .filter(|argument| argument.get_action().takes_values())
        .flat_map(|argument| {
            let long = argument.get_long().map(|long| format!("--{long}"));
            let short = argument.get_short().map(|short| format!("-{short}"));
            let aliases = argument.get_all_aliases().unwrap_or_default();
            let aliases: Vec<String> = aliases.iter().map(|alias| format!("--{alias}")).collect();
            long.into_iter().chain(short).chain(aliases)
        })
        // Belongs to `shell` alone.
        .chain(["-s".to_owned(), "--shell".to_owned()])
        .collect()
}

fn is_assignment(word: &[u8]) -> bool {
    let name = word.split(|&byte| byte == b'=').next().unwrap_or_default();
    name.len() < word.len()
        && name
            .first()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn is_bind(word: &[u8]) -> bool {
    word.contains(&b':')
        && (word.starts_with(b"/") || word.starts_with(b".") || word.starts_with(b"~"))
}

/// Whether a directory looks like the root of a system rather than like a place to work in.
fn holds_image(path: &Path) -> bool {
    path.is_file()
        || [".singularity.d", "bin", "usr/bin"]
            .iter()
            .any(|sign| path.join(sign).exists())
}

/// Options as variables, with Apptainer's precedence.
struct Settings<'s> {
    session: &'s Session,
}

impl<'s> Settings<'s> {
    /// The first of these names that is set under the first family that has it.
    fn get(&self, names: &[&str]) -> Option<&'s OsStr> {
        ["LONGSHORE_", "APPTAINER_", "SINGULARITY_"]
            .iter()
            .find_map(|family| {
                names
                    .iter()
                    .filter_map(|name| self.session.var(format!("{family}{name}")))
                    .find(|value| !value.is_empty())
            })
    }

    fn flag(&self, given: bool, names: &[&str]) -> bool {
        given
            || self.get(names).is_some_and(|value| {
                !matches!(
                    value.to_ascii_lowercase().as_bytes(),
                    b"0" | b"f" | b"false" | b"no" | b"n" | b"off"
                )
            })
    }

    fn text(&self, given: Option<&OsString>, names: &[&str]) -> Option<OsString> {
        given
            .cloned()
            .or_else(|| self.get(names).map(OsStr::to_owned))
    }

    /// A comma list; the command line's replaces the variable's.
    fn list(&self, given: &[String], names: &[&str]) -> Vec<String> {
        if !given.is_empty() {
            return given.to_vec();
        }
        let value = self.get(names).unwrap_or_default().to_string_lossy();
        value
            .split(',')
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn paths(&self, given: &[OsString], names: &[&str]) -> Vec<OsString> {
        if !given.is_empty() {
            return given.to_vec();
        }
        let value = self.get(names).unwrap_or_default();
        value
            .as_bytes()
            .split(|&byte| byte == b',')
            .filter(|part| !part.is_empty())
            .map(|part| OsStr::from_bytes(part).to_owned())
            .collect()
    }

    /// Values that a nested start inherits from the container around it are not its user's.
    fn binds(&self) -> Vec<&'s OsStr> {
        let inherited = self.session.var("LONGSHORE_BOUND");
        ["BIND", "BINDPATH"]
            .iter()
            .filter_map(|name| self.get(&[name]))
            .filter(|value| Some(*value) != inherited)
            .collect()
    }
}

impl ActionOptions {
    /// Whether the plan is wanted in place of the container.
    pub(crate) fn shows_plan(&self) -> bool {
        self.dry_run
    }

    /// Checks the options and variables and states them as one value.
    pub(crate) fn spec(&self, session: &Session, action: Action) -> Result<RunSpec, CommandError> {
        let settings = Settings { session };
        let cwd = &session.cwd;
        let compat = settings.flag(self.compat, &["COMPAT"]);
        let containall = compat || settings.flag(self.containall, &["CONTAINALL"]);
        let pid = settings.flag(self.pid, &["PID", "UNSHARE_PID"]) || containall;
        let pids = match (
            pid && !settings.flag(self.no_pid, &["NO_PID"]),
            compat || settings.flag(self.no_init, &["NO_INIT", "NOSHIMINIT"]),
        ) {
            (false, _) => Pids::Shared,
            (true, false) => Pids::WithInit,
            (true, true) => Pids::WithoutInit,
        };
        let mut spec = RunSpec {
            mounts: self.mounts(&settings).map_err(usage)?,
            scratch: self.scratch(&settings).map_err(usage)?,
            workdir: settings
                .text(
                    self.workdir.clone().map(PathBuf::into_os_string).as_ref(),
                    &["WORKDIR"],
                )
                .map(|path| absolute(Path::new(&path), cwd)),
            contain: containall || settings.flag(self.contain, &["CONTAIN"]),
            home: self.home(&settings).map_err(usage)?,
            no_mount: settings
                .list(&self.no_mount, &["NO_MOUNT"])
                .iter()
                .map(|word| Omit::parse(word))
                .collect::<Result<_, _>>()
                .map_err(usage)?,
            cwd: settings
                .text(
                    self.pwd.clone().map(PathBuf::into_os_string).as_ref(),
                    &["PWD", "TARGET_PWD", "CWD", "TARGET_CWD"],
                )
                .map(PathBuf::from),
            isolate: Isolate {
                pids,
                ipc: containall || settings.flag(self.ipc, &["IPC", "UNSHARE_IPC"]),
                net: self.net(&settings)?,
                uts: settings.flag(self.uts, &["UTS", "UNSHARE_UTS"]),
                user: settings.flag(self.userns, &["USERNS", "UNSHARE_USERNS"]),
            },
            hostname: settings.text(self.hostname.as_ref(), &["HOSTNAME"]),
            dns: settings.list(&self.dns, &["DNS"]),
            identity: self.identity(&settings)?,
            clean_env: containall || settings.flag(self.cleanenv, &["CLEANENV"]),
            env: self.env(&settings)?,
            no_env: settings.paths(&self.no_env, &["NOENV", "NO_ENV"]),
            writable: match (
                settings.flag(self.writable, &["WRITABLE"]),
                compat || settings.flag(self.writable_tmpfs, &["WRITABLE_TMPFS"]),
            ) {
                (true, _) => Writable::InPlace,
                (false, true) => Writable::Tmpfs,
                (false, false) => Writable::ReadOnly,
            },
            overlays: self.overlays(&settings)?,
            default_umask: compat || settings.flag(self.no_umask, &["NO_UMASK"]),
            memory_bytes: None,
            action,
        };
        // The kernel's own limit is half of the node's memory. In a job that may use less, a full
        // /tmp would then be the end of the job, in place of "no space left".
        if spec.writes_to_memory() {
            spec.memory_bytes = longshore_host::memory_limit().map(|bytes| bytes / 2);
        }
        Ok(spec)
    }

    fn mounts(&self, settings: &Settings<'_>) -> Result<Vec<MountRequest>, SpecError> {
        let cwd = &settings.session.cwd;
        let mut list = Vec::new();
        for text in self
            .bind
            .iter()
            .map(OsString::as_os_str)
            .chain(settings.binds())
        {
            list.extend(MountRequest::parse_binds(text, cwd)?);
        }
        for text in &self.mount {
            list.push(MountRequest::parse_mount(text, cwd)?);
        }
        let lines = settings.get(&["MOUNT"]).unwrap_or_default().as_bytes();
        for line in lines
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            list.push(MountRequest::parse_mount(OsStr::from_bytes(line), cwd)?);
        }
        Ok(list)
    }

    fn scratch(&self, settings: &Settings<'_>) -> Result<Vec<PathBuf>, SpecError> {
        let given: Vec<OsString> = self
            .scratch
            .iter()
            .map(|path| path.clone().into_os_string())
            .collect();
        settings
            .paths(&given, &["SCRATCH", "SCRATCHDIR"])
            .iter()
            .map(|path| checked_target(&Path::new("/").join(path)))
            .collect()
    }

    fn home(&self, settings: &Settings<'_>) -> Result<Home, SpecError> {
        let session = settings.session;
        if let Some(text) = settings.text(self.home.as_ref(), &["HOME"]) {
            let mut parts = text.as_bytes().splitn(2, |&byte| byte == b':');
            let source = OsStr::from_bytes(parts.next().unwrap_or_default());
            if source.is_empty() {
                return Err(SpecError::NoPath(text.to_string_lossy().into_owned()));
            }
            let source = absolute(Path::new(source), &session.cwd);
            let target = match parts.next() {
                Some(target) => checked_target(Path::new(OsStr::from_bytes(target)))?,
                None => checked_target(&source)?,
            };
            return Ok(Home::At { source, target });
        }
        if settings.flag(self.no_home, &["NO_HOME"]) {
            return Ok(Home::None);
        }
        Ok(Home::Own)
    }

    fn net(&self, settings: &Settings<'_>) -> Result<bool, CommandError> {
        let kind = settings.text(
            self.network.as_ref().map(OsString::from).as_ref(),
            &["NETWORK"],
        );
        match kind {
            Some(kind) if kind != "none" => Err(CommandError::new(
                Kind::NotStarted,
                format!("there is no `--network {}` here", kind.to_string_lossy()),
            )
            .hint("`--net --network none` gives loopback alone; without `--net` the container uses the host's network")),
            _ => Ok(settings.flag(self.net, &["NET", "UNSHARE_NET"])),
        }
    }

    fn identity(&self, settings: &Settings<'_>) -> Result<Identity, CommandError> {
        let capabilities = |given: &[String], name: &str| {
            let list = settings.list(given, &[name]);
            match list
                .iter()
                .find(|name| !longshore_container::is_capability(name))
            {
                Some(unknown) => Err(CommandError::new(
                    Kind::NotStarted,
                    format!(
                        "`{unknown}` is no capability; they are named as in capabilities(7), such as CAP_NET_RAW"
                    ),
                )),
                None => Ok(list),
            }
        };
        let mut identity = Identity {
            fakeroot: settings.flag(self.fakeroot, &["FAKEROOT"]),
            privileges: Privileges {
                none: settings.flag(self.no_privs, &["NO_PRIVS"]) && !self.keep_privs,
                add: capabilities(&self.add_caps, "ADD_CAPS")?,
                drop: capabilities(&self.drop_caps, "DROP_CAPS")?,
            },
            ..Identity::default()
        };
        for word in settings.list(&self.security, &["SECURITY"]) {
            let wrong = |why: &str| {
                CommandError::new(Kind::NotStarted, format!("`--security {word}`: {why}"))
            };
            // The largest number means "leave as it is" to setresuid(2), and would stay root.
            let number = |text: &str| {
                let id = text.parse::<u32>().ok().filter(|&id| id != u32::MAX);
                id.ok_or_else(|| wrong("an id is a number below 4294967295"))
            };
            match word.split_once(':') {
                Some(("uid", id)) => identity.uid = Some(number(id)?),
                Some(("gid", ids)) => {
                    identity.gids = ids.split(':').map(number).collect::<Result<_, _>>()?;
                }
                _ => return Err(wrong("there are uid:N and gid:N[:N]")),
            }
        }
        Ok(identity)
    }

    /// From the weakest to the strongest: `APPTAINERENV_X`, `--env-file`, `--env`.
    fn env(&self, settings: &Settings<'_>) -> Result<Vec<EnvRequest>, CommandError> {
        let session = settings.session;
        let mut list = Vec::new();
        for family in ["SINGULARITYENV_", "APPTAINERENV_", "LONGSHOREENV_"] {
            for (variable, value) in &session.env {
                if let Some(name) = variable.as_bytes().strip_prefix(family.as_bytes())
                    && !name.is_empty()
                {
                    list.push(EnvRequest {
                        name: OsStr::from_bytes(name).to_owned(),
                        value: value.clone(),
                        origin: Origin::Prefixed(variable.to_string_lossy().into_owned()),
                    });
                }
            }
        }
        let files: Vec<OsString> = self
            .env_file
            .iter()
            .map(|path| path.clone().into_os_string())
            .collect();
        for file in settings.paths(&files, &["ENV_FILE"]) {
            let path = Path::new(&file);
            let text = std::fs::read(path).map_err(|error| {
                CommandError::new(
                    Kind::NotStarted,
                    format!(
                        "cannot read the environment file {}: {error}",
                        path.display()
                    ),
                )
            })?;
            list.extend(parse_env_file(path, &text, session).map_err(|error| {
                CommandError::from_error(Kind::NotStarted, &error)
                    .hint("run the file in your shell and pass the values by `--env`")
            })?);
        }
        for text in &self.env {
            list.extend(
                parse_env(text, &Origin::Option)
                    .map_err(|error| CommandError::from_error(Kind::NotStarted, &error))?,
            );
        }
        for text in &self.env_exact {
            let bytes = text.as_bytes();
            let equals = bytes
                .iter()
                .position(|&byte| byte == b'=')
                .unwrap_or(bytes.len());
            list.push(EnvRequest {
                name: OsStr::from_bytes(&bytes[..equals]).to_owned(),
                value: OsStr::from_bytes(bytes.get(equals + 1..).unwrap_or_default()).to_owned(),
                origin: Origin::Option,
            });
        }
        Ok(list)
    }

    fn overlays(&self, settings: &Settings<'_>) -> Result<Vec<OverlayDir>, CommandError> {
        settings
            .paths(&self.overlay, &["OVERLAY", "OVERLAYIMAGE"])
            .iter()
            .map(|text| {
                let mut overlay = OverlayDir::parse(text);
                overlay.path = absolute(&overlay.path, &settings.session.cwd);
                if overlay.path.is_file() {
                    return Err(CommandError::new(
                        Kind::NotStarted,
                        format!(
                            "cannot lay {} over the image: it is a file",
                            overlay.path.display()
                        ),
                    )
                    .hint("directories work; image files as overlays are not supported yet"));
                }
                Ok(overlay)
            })
            .collect()
    }
}

/// One setting of those that are not options of every command.
pub(crate) fn setting(session: &Session, name: &str) -> Option<OsString> {
    Settings { session }.get(&[name]).map(OsStr::to_owned)
}

fn usage(error: SpecError) -> CommandError {
    CommandError::from_error(Kind::NotStarted, &error)
}

/// Probes the caller.
pub(crate) fn session() -> Result<Session, CommandError> {
    Session::probe().map_err(|error| CommandError::from_error(Kind::NotStarted, &error))
}

/// Splits the words after the options into the image and what follows it; one `--` between them
/// is for those who like it.
pub(crate) fn image_and_rest(words: &[OsString]) -> (&OsStr, Vec<OsString>) {
    let (image, rest) = words.split_first().expect("clap demands an image");
    let rest = match rest.split_first() {
        Some((dashes, rest)) if dashes == "--" => rest,
        _ => rest,
    };
    (image, rest.to_vec())
}

/// From the words of a command line to the end of what they start.
pub(crate) fn perform(
    ui: &mut Ui,
    session: &Session,
    image: &OsStr,
    action: Action,
    options: &ActionOptions,
) -> Result<Status, CommandError> {
    if let Some(name) = instance::name_in(image) {
        return instance::join(ui, session, name, action, options);
    }
    let spec = options.spec(session, action)?;
    let rootfs = image_source::open(ui, session, image, &options.image)?;
    start(ui, session, &rootfs, &spec, options)
}

/// Prints a plan in place of carrying it out.
pub(crate) fn show(
    ui: &mut Ui,
    plan: &RunPlan,
    options: &ActionOptions,
) -> Result<Status, CommandError> {
    if options.json {
        ui.json(&plan_text::PlanRecord::new(plan))?;
    } else {
        ui.result(&plan_text::text(plan))?;
    }
    Ok(DONE)
}

/// From a checked request to a running container, or to its plan on the screen.
fn start(
    ui: &mut Ui,
    session: &Session,
    rootfs: &Rootfs,
    spec: &RunSpec,
    options: &ActionOptions,
) -> Result<Status, CommandError> {
    let plan = planned(session, rootfs, spec)?;
    if options.shows_plan() {
        return show(ui, &plan, options);
    }
    tell(ui, &plan);
    let outcome = longshore_container::execute(&plan, &mut |told| hear(ui, told));
    ended(outcome.map_err(|error| start_error(&error, rootfs))?)
}

/// Looks at the image and plans.
pub(crate) fn planned(
    session: &Session,
    rootfs: &Rootfs,
    spec: &RunSpec,
) -> Result<RunPlan, CommandError> {
    let facts =
        longshore_container::inspect(spec, session, rootfs).map_err(|error: InspectError| {
            CommandError::from_error(Kind::NotStarted, &error).context(while_starting(rootfs))
        })?;
    longshore_container::plan(spec, session, rootfs, &facts).map_err(|error: PlanError| {
        CommandError::from_error(Kind::NotStarted, &error).context(while_starting(rootfs))
    })
}

/// Says what comes up while a container is put together.
pub(crate) fn hear(ui: &mut Ui, told: Told<'_>) {
    match told {
        Told::Notice(text) => ui.notice(text),
        Told::Detail(text) => ui.detail(text),
    }
}

/// Says what the user should know about a plan.
pub(crate) fn tell(ui: &mut Ui, plan: &RunPlan) {
    for notice in &plan.notices {
        ui.notice(notice);
    }
    for detail in &plan.details {
        ui.detail(detail);
    }
}

/// Ends as the program ended.
pub(crate) fn ended(outcome: Outcome) -> Result<Status, CommandError> {
    match outcome {
        Outcome::Exited(status) => Ok(Status(status)),
        Outcome::Killed(signal) => longshore_sys::signal::die_of(signal),
    }
}

fn while_starting(rootfs: &Rootfs) -> String {
    format!("while starting {}", rootfs.name.to_string_lossy())
}

/// Sorts failures into the exit statuses that shells use for them.
pub(crate) fn start_error(error: &StartError, rootfs: &Rootfs) -> CommandError {
    let kind = match error {
        StartError::ProgramNotFound { .. } => Kind::ProgramNotFound,
        StartError::NotExecutable { .. } => Kind::NotExecutable,
        _ => Kind::NotStarted,
    };
    let told = CommandError::from_error(kind, error).context(while_starting(rootfs));
    match error.hint() {
        Some(hint) => told.hint(hint),
        None => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, expected: &str) {
        let words = |text: &str| {
            text.split_whitespace()
                .map(OsString::from)
                .collect::<Vec<_>>()
        };
        assert_eq!(understand_docker(words(given)), words(expected));
    }

    #[test]
    fn docker_spellings_are_understood_where_nothing_else_is_meant() {
        check(
            "longshore run --rm -it -v /a:/b -e X=1,2 -w /nowhere img -e Y=1 --rm",
            "longshore run --bind /a:/b --env-exact X=1,2 --pwd /nowhere img -e Y=1 --rm",
        );
    }

    #[test]
    fn apptainer_spellings_keep_their_meaning() {
        check("longshore exec -e img X=1", "longshore exec -e img X=1");
        check("longshore exec -w / true", "longshore exec -w / true");
        check("longshore exec -w img", "longshore exec -w img");
        check(
            "longshore -v exec img -v a:b",
            "longshore -v exec img -v a:b",
        );
        check(
            "longshore exec -B -e -e A=1 img",
            "longshore exec -B -e --env-exact A=1 img",
        );
        check("longshore images -v", "longshore images -v");
    }
}
