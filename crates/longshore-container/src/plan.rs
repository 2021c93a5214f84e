//! Decides, from what was asked and what was found, everything that a start will do.
//!
//! Nothing here touches the system: a plan is data that can be printed, compared and tested.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longshore_host::Session;
use serde::Serialize;
use thiserror::Error;

use crate::account;
use crate::environment::{self, Environment, Variable};
use crate::facts::{self, Facts, IdRanges, Kind, Place};
use crate::mounts::{self, Limits, Necessity, Source, Wanted};
use crate::rootfs::Rootfs;
use crate::spec::{Action, OverlayDir, Pids, RunSpec, Writable};

/// Everything that a start will do, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunPlan {
    /// The image as its user named it.
    #[serde(serialize_with = "crate::lossy::word")]
    pub image: OsString,
    /// Namespaces that are made.
    pub namespaces: PlannedNamespaces,
    /// Who the program is.
    pub identity: PlannedIdentity,
    /// What `/` is made of.
    pub root: Root,
    /// Mounts below `/`, in order.
    pub mounts: Vec<Mount>,
    /// Variables.
    pub environment: Vec<Variable>,
    /// What is started.
    pub program: Program,
    /// Where it starts: the first of these that is there.
    pub directories: Vec<StartDirectory>,
    /// The caller's umask is replaced by 022.
    pub default_umask: bool,
    /// What the user should know.
    pub notices: Vec<String>,
    /// What was chosen and why, for those who ask.
    pub details: Vec<String>,
}

/// Namespaces that are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedNamespaces {
    /// A user namespace; absent where root needs none.
    pub user: bool,
    /// An own process namespace.
    pub pid: bool,
    /// Its first process is a small one of ours.
    pub init: bool,
    /// System V IPC and message queues.
    pub ipc: bool,
    /// Network.
    pub net: bool,
    /// Host name.
    pub uts: bool,
    /// The host name inside.
    pub hostname: Option<String>,
}

/// Who the program is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedIdentity {
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// How ids are mapped.
    pub mapping: Mapping,
    /// What is left of the capabilities.
    pub capabilities: Capabilities,
    /// As root: become this user before the start.
    pub switch_uid: Option<u32>,
    /// As root: with these groups.
    pub switch_gids: Vec<u32>,
}

/// How the ids inside relate to those outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Mapping {
    /// No user namespace: they are the same.
    None,
    /// One user and one group; everybody else appears as `nobody`.
    Single {
        /// The caller's user id.
        outside_uid: u32,
        /// The caller's group id.
        outside_gid: u32,
    },
    /// The caller as root, and the ranges of ids that the administrator gave.
    Ranges {
        /// The caller's user id.
        outside_uid: u32,
        /// The caller's group id.
        outside_gid: u32,
        /// The others.
        ranges: IdRanges,
    },
}

/// What is left of the capabilities when the program starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Capabilities {
    /// None.
    None,
    /// Those of the user namespace: root over the mapped ids.
    OfNamespace,
    /// Those that the caller has.
    OfCaller {
        /// Start from nothing.
        none: bool,
        /// Kept all the same.
        add: Vec<String>,
        /// Taken away.
        drop: Vec<String>,
    },
}

/// What `/` is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Root {
    /// The image directory.
    Directory {
        /// On the host.
        #[serde(serialize_with = "crate::lossy::path")]
        path: PathBuf,
        /// Nothing can be written.
        read_only: bool,
    },
    /// A directory in memory that holds bind points, and the image's own entries beside them.
    ///
    /// All below those entries is the image's file system itself, at its full speed; an overlay over
    /// the whole image costs a fifth of the time of a program that opens many small files.
    Temporary {
        /// On the host.
        #[serde(serialize_with = "crate::lossy::path")]
        path: PathBuf,
        /// Bind points that the image does not have, directly below `/`.
        bind_points: Vec<BindPoint>,
    },
    /// The image directory with other layers over it.
    Layers {
        /// On the host.
        #[serde(serialize_with = "crate::lossy::path")]
        path: PathBuf,
        /// Bind points that the image does not have.
        bind_points: Vec<BindPoint>,
        /// Directories laid over it that are only read, lowest first.
        read_only: Vec<Layer>,
        /// Where writes go.
        upper: Upper,
    },
}

/// A bind point that the image does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BindPoint {
    /// Inside, links resolved.
    #[serde(serialize_with = "crate::lossy::path")]
    pub path: PathBuf,
    /// What it has to be.
    pub kind: Kind,
}

/// A directory laid over the image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// On the host.
    #[serde(serialize_with = "crate::lossy::path")]
    pub path: PathBuf,
}

/// Where writes go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Upper {
    /// Nowhere.
    None,
    /// To memory, until the container ends.
    Tmpfs {
        /// Its limit, else half of the memory.
        size_bytes: Option<u64>,
    },
    /// To `upper` in this directory, with `work` beside it.
    Directory {
        /// On the host.
        #[serde(serialize_with = "crate::lossy::path")]
        path: PathBuf,
    },
}

/// A mount below `/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Inside.
    #[serde(serialize_with = "crate::lossy::path")]
    pub target: PathBuf,
    /// What.
    pub source: Source,
    /// What may not be done through it.
    pub limits: Limits,
    /// Why.
    pub reason: &'static str,
    /// What happens when it is not possible.
    pub necessity: Necessity,
    /// The mount point is made first, in a temporary file system of the container's own.
    pub make: Option<Kind>,
}

/// What is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The program and its arguments.
    #[serde(serialize_with = "crate::lossy::words")]
    pub arguments: Vec<OsString>,
    /// Where it is looked for when its name has no slash.
    #[serde(serialize_with = "crate::lossy::word")]
    pub search: OsString,
}

/// A place where the program may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StartDirectory {
    /// Inside.
    #[serde(serialize_with = "crate::lossy::path")]
    pub path: PathBuf,
    /// It was asked for: nothing else will do.
    pub asked: bool,
}

/// Why there can be no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// What was to be bound is not there.
    #[error("cannot bind {} to {}: {reason}", path.display(), target.display())]
    Source {
        /// On the host.
        path: PathBuf,
        /// Inside.
        target: PathBuf,
        /// The kernel's words.
        reason: String,
    },
    /// A bind point is not there and cannot be made.
    #[error("there is no {} to bind to: {reason}", target.display())]
    Target {
        /// Inside.
        target: PathBuf,
        /// Why it is not made.
        reason: String,
    },
    /// A directory was to be bound to a file, or the other way round.
    #[error("cannot bind {} to {}: one is a directory and the other is not", path.display(), target.display())]
    Kinds {
        /// On the host.
        path: PathBuf,
        /// Inside.
        target: PathBuf,
    },
    /// Nothing says what to run.
    #[error("no command was given to `{0}`")]
    NoCommand(&'static str),
    /// Options that exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
}

/// Decides everything that starting `spec` on this image will do.
///
/// # Errors
///
/// [`PlanError`] where something that was asked for is not possible. A default that is not
/// possible is a notice of the plan.
pub fn plan(
    spec: &RunSpec,
    session: &Session,
    rootfs: &Rootfs,
    facts: &Facts,
) -> Result<RunPlan, PlanError> {
    let mut notices = Vec::new();
    let mut details = Vec::new();
    let identity = identity(spec, session, facts, &mut notices);
    let mut wanted = mounts::wanted(spec, session);
    fill_account_files(&mut wanted, spec, session, facts, &identity);
    let mut placing = Placing {
        facts,
        in_place: facts::writes_in_place(spec) && spec.overlays.is_empty(),
        root_inside: identity.uid == 0,
        bind_points: Vec::new(),
        layered: spec.writable == Writable::Tmpfs || !spec.overlays.is_empty(),
        room: Vec::new(),
        roomy: Vec::new(),
        skeletons: Vec::new(),
        notices: &mut notices,
        details: &mut details,
    };
    let mut mounts = Vec::with_capacity(wanted.len());
    let mut left_out = vec![false; wanted.len()];
    for index in 0..wanted.len() {
        match placing.place(&wanted, index, &left_out)? {
            Some(mount) => {
                mounts.append(&mut placing.room);
                mounts.push(mount);
            }
            None => left_out[index] = true,
        }
    }
    // What they show is the image's, so that they come before all that lies on the image.
    let mut skeletons = placing.skeletons;
    skeletons.sort_by(|one, other| one.target.cmp(&other.target));
    mounts.splice(0..0, skeletons);
    let bind_points = placing.bind_points;
    let root = root(spec, rootfs, bind_points)?;
    let Environment {
        variables,
        shell,
        notices: more,
    } = environment::environment(spec, session, rootfs, facts);
    notices.extend(more);
    let mut arguments = command(spec, rootfs, facts)?;
    let search = variables
        .iter()
        .find(|variable| variable.name == "PATH")
        .map(|variable| variable.value.clone())
        .unwrap_or_default();
    if let Some(finish) = shell {
        details.push(format!(
            "the image's own /bin/sh finishes the environment, because of {}",
            finish.reason
        ));
        let mut through: Vec<OsString> = vec![
            "/bin/sh".into(),
            "-c".into(),
            finish.script,
            "longshore".into(),
        ];
        through.append(&mut arguments);
        arguments = through;
    }
    Ok(RunPlan {
        image: rootfs.name.clone(),
        namespaces: namespaces(spec, &identity),
        identity,
        root,
        mounts,
        environment: variables,
        program: Program { arguments, search },
        directories: directories(spec, session, rootfs),
        default_umask: spec.default_umask,
        notices,
        details,
    })
}

fn namespaces(spec: &RunSpec, identity: &PlannedIdentity) -> PlannedNamespaces {
    PlannedNamespaces {
        user: identity.mapping != Mapping::None,
        pid: spec.isolate.pids != Pids::Shared,
        init: spec.isolate.pids == Pids::WithInit,
        ipc: spec.isolate.ipc,
        net: spec.isolate.net,
        uts: spec.isolate.uts || spec.hostname.is_some(),
        hostname: spec
            .hostname
            .as_ref()
            .map(|name| name.to_string_lossy().into_owned()),
    }
}

fn identity(
    spec: &RunSpec,
    session: &Session,
    facts: &Facts,
    notices: &mut Vec<String>,
) -> PlannedIdentity {
    let (outside_uid, outside_gid) = (session.uid, session.gid);
    let single = Mapping::Single {
        outside_uid,
        outside_gid,
    };
    let asked = &spec.identity;
    let privileges = &asked.privileges;
    let wants_privileges =
        privileges.none || !privileges.add.is_empty() || !privileges.drop.is_empty();
    if session.uid != 0 {
        if !asked.gids.is_empty() || asked.uid.is_some() {
            notices.push("`--security uid:` and `gid:` have an effect for root only".into());
        }
        if !privileges.add.is_empty() || !privileges.drop.is_empty() {
            notices.push("`--add-caps` and `--drop-caps` have an effect for root only".into());
        }
    }
    if mounts::appears_as_root(spec, session) {
        let mapping = match &facts.id_ranges {
            Some(ranges) => Mapping::Ranges {
                outside_uid,
                outside_gid,
                ranges: ranges.clone(),
            },
            None => {
                notices.push(format!(
                    "only your own id is mapped to root, since {} has no range of ids in /etc/subuid and \
                     /etc/subgid or newuidmap is not installed; programs that give files to other users, \
                     such as package managers, will fail",
                    session.user.to_string_lossy()
                ));
                single
            }
        };
        return PlannedIdentity {
            uid: 0,
            gid: 0,
            mapping,
            capabilities: Capabilities::OfNamespace,
            switch_uid: None,
            switch_gids: Vec::new(),
        };
    }
    let is_root = session.uid == 0;
    let user_namespace = !is_root || spec.isolate.user || facts.powerless_root;
    let capabilities = match (is_root, user_namespace) {
        (true, false) => Capabilities::OfCaller {
            none: privileges.none,
            add: privileges.add.clone(),
            drop: privileges.drop.clone(),
        },
        (true, true) if !wants_privileges => Capabilities::OfNamespace,
        _ => Capabilities::None,
    };
    let switching = is_root && !user_namespace;
    if is_root && user_namespace && (asked.uid.is_some() || !asked.gids.is_empty()) {
        notices.push(
            "`--security uid:` and `gid:` have no effect in a user namespace, which has root's id alone"
                .into(),
        );
    }
    if switching && asked.uid.is_some() && asked.gids.is_empty() {
        notices.push("the program keeps root's groups; `--security gid:N` gives them up".into());
    }
    let switch_uid = asked.uid.filter(|_| switching);
    let switch_gids = if switching {
        asked.gids.clone()
    } else {
        Vec::new()
    };
    PlannedIdentity {
        uid: switch_uid.unwrap_or(session.uid),
        gid: switch_gids.first().copied().unwrap_or(session.gid),
        mapping: if user_namespace {
            single
        } else {
            Mapping::None
        },
        capabilities,
        switch_uid,
        switch_gids,
    }
}

fn fill_account_files(
    wanted: &mut [Wanted],
    spec: &RunSpec,
    session: &Session,
    facts: &Facts,
    identity: &PlannedIdentity,
) {
    let home = mounts::home_inside(spec, session);
    for mount in wanted {
        let Source::Generated { content } = &mut mount.source else {
            continue;
        };
        if mount.target == Path::new("/etc/passwd") {
            *content = account::passwd(
                &facts.passwd,
                session,
                identity.uid,
                identity.gid,
                home.as_os_str().as_bytes(),
            );
        } else if mount.target == Path::new("/etc/group") {
            let mut gids = vec![identity.gid];
            // Of the caller's other groups a mapping of one id shows none by name.
            if identity.mapping == Mapping::None {
                gids.extend(&session.groups);
            }
            *content = account::group(&facts.group, session, &gids, &facts.host_group);
        }
    }
}

/// What holds only bind points has nothing to write and nothing to run.
const SEALED: Limits = Limits {
    read_only: true,
    no_suid: true,
    no_dev: true,
};

struct Placing<'a> {
    facts: &'a Facts,
    in_place: bool,
    root_inside: bool,
    bind_points: Vec<BindPoint>,
    /// An overlay is laid over the image in any case, so that bind points cost nothing there.
    layered: bool,
    /// Mounts that make room for others, in the order in which they are needed.
    room: Vec<Mount>,
    /// Where that was done.
    roomy: Vec<PathBuf>,
    /// Directories of the image that get bind points beside what they hold.
    skeletons: Vec<Mount>,
    notices: &'a mut Vec<String>,
    details: &'a mut Vec<String>,
}

impl Placing<'_> {
    /// Finds the place of one mount; `None` where a default is left out.
    fn place(
        &mut self,
        wanted: &[Wanted],
        index: usize,
        left_out: &[bool],
    ) -> Result<Option<Mount>, PlanError> {
        let mount = &wanted[index];
        let target = &mount.target;
        if self.leaves_accounts_alone(mount) {
            return Ok(None);
        }
        let kind = match (
            &mount.source,
            self.facts.sources.get(index).and_then(Option::as_ref),
        ) {
            (Source::Bind { path }, Some(Err(reason))) => {
                let error = PlanError::Source {
                    path: path.clone(),
                    target: target.clone(),
                    reason: reason.clone(),
                };
                return self.leave_out(mount, error);
            }
            (Source::Bind { .. }, Some(Ok(kind))) => *kind,
            (Source::Generated { .. } | Source::Link { .. }, _) => Kind::File,
            _ => Kind::Directory,
        };
        let cover = mounts::cover(wanted, index).filter(|&cover| !left_out[cover]);
        let make = match cover.map(|cover| &wanted[cover].source) {
            None => match self.facts.places.get(index).and_then(Option::as_ref) {
                Some(Place::There(there)) if *there == kind => None,
                Some(Place::There(_)) => return self.leave_out(mount, kinds(mount)),
                Some(Place::Missing {
                    parent,
                    empty: Some(mode),
                    ..
                }) if !self.in_place && !self.layered => {
                    self.make_room(parent, *mode);
                    Some(kind)
                }
                Some(Place::Missing { parent, rest, .. }) if !self.in_place => {
                    let point = BindPoint {
                        path: parent.join(rest),
                        kind,
                    };
                    if self.layered || parent == Path::new("/") {
                        self.bind_points.push(point);
                    } else {
                        self.add_to_skeleton(parent, point);
                    }
                    None
                }
                Some(Place::Blocked) => {
                    let reason = "a file of the image stands where a directory is needed";
                    return self.leave_out(mount, target_error(target, reason));
                }
                Some(Place::Missing { .. }) | None => {
                    let reason = "the image does not have it, and with `--writable` nothing is laid over \
                                  the image; make it in the image first";
                    return self.leave_out(mount, target_error(target, reason));
                }
            },
            Some(Source::Bind { path }) => {
                match self.facts.places.get(index).and_then(Option::as_ref) {
                    Some(Place::There(there)) if *there == kind => None,
                    Some(Place::There(_)) => return self.leave_out(mount, kinds(mount)),
                    _ => {
                        let reason = format!(
                            "it is not there in {} of the host; make it first",
                            path.display()
                        );
                        return self.leave_out(mount, target_error(target, &reason));
                    }
                }
            }
            // Both are the container's own, so that a place in them can be made.
            Some(Source::Tmpfs { .. } | Source::HostDir { .. }) => {
                let cover = cover.expect("it has a source");
                // The root of the file system is there; what lies below has to be made.
                (wanted[cover].target != *target).then_some(kind)
            }
            Some(_) => {
                let reason = "another mount of the container stands there";
                return self.leave_out(mount, target_error(target, reason));
            }
        };
        Ok(Some(Mount {
            target: target.clone(),
            source: mount.source.clone(),
            limits: mount.limits,
            reason: mount.reason,
            necessity: mount.necessity,
            make,
        }))
    }

    /// Root has a line in every image, and its package managers replace these files, which a mount
    /// on them would refuse.
    fn leaves_accounts_alone(&self, mount: &Wanted) -> bool {
        let image = match mount.target.to_str() {
            Some("/etc/passwd") => &self.facts.passwd,
            Some("/etc/group") => &self.facts.group,
            _ => return false,
        };
        let generated = matches!(mount.source, Source::Generated { .. });
        generated && self.root_inside && !image.is_empty()
    }

    /// An empty directory of the image gives way to one of the container's own: that is cheaper to
    /// make than an overlay over the whole image, and leaves all else at native speed.
    fn make_room(&mut self, at: &Path, mode: u32) {
        if self.roomy.iter().any(|place| place == at) {
            return;
        }
        self.roomy.push(at.to_owned());
        self.room.push(Mount {
            target: at.to_owned(),
            source: Source::BindPoints { mode },
            limits: SEALED,
            reason: "room for bind points",
            necessity: Necessity::Asked,
            make: None,
        });
    }

    /// Lets a directory of the image have one more bind point.
    fn add_to_skeleton(&mut self, at: &Path, point: BindPoint) {
        for skeleton in &mut self.skeletons {
            if skeleton.target == at
                && let Source::Skeleton { points } = &mut skeleton.source
            {
                points.push(point);
                return;
            }
        }
        self.skeletons.push(Mount {
            target: at.to_owned(),
            source: Source::Skeleton {
                points: vec![point],
            },
            limits: SEALED,
            reason: "the image's, with bind points",
            necessity: Necessity::Asked,
            make: None,
        });
    }

    fn leave_out(&mut self, mount: &Wanted, error: PlanError) -> Result<Option<Mount>, PlanError> {
        match mount.necessity {
            Necessity::Asked => return Err(error),
            Necessity::Default => self.notices.push(format!("left out: {error}")),
            Necessity::Nicety => self.details.push(format!("left out: {error}")),
        }
        Ok(None)
    }
}

fn kinds(mount: &Wanted) -> PlanError {
    PlanError::Kinds {
        path: mount.host_path().unwrap_or(&mount.target).to_owned(),
        target: mount.target.clone(),
    }
}

fn target_error(target: &Path, reason: &str) -> PlanError {
    PlanError::Target {
        target: target.to_owned(),
        reason: reason.to_owned(),
    }
}

fn root(spec: &RunSpec, rootfs: &Rootfs, bind_points: Vec<BindPoint>) -> Result<Root, PlanError> {
    let path = rootfs.path.clone();
    let (read_only, writable): (Vec<&OverlayDir>, Vec<&OverlayDir>) =
        spec.overlays.iter().partition(|overlay| overlay.read_only);
    let upper = match (spec.writable, writable.as_slice()) {
        (_, [_, _, ..]) => {
            return Err(PlanError::Conflict(
                "only one `--overlay` can be written; add `:ro` to the others",
            ));
        }
        (Writable::InPlace, [_]) => {
            return Err(PlanError::Conflict(
                "`--writable` changes the image itself and `--overlay` keeps it as it is; choose one",
            ));
        }
        (Writable::Tmpfs, [_]) => {
            return Err(PlanError::Conflict(
                "`--writable-tmpfs` and a writable `--overlay` exclude each other; add `:ro` to the overlay",
            ));
        }
        (Writable::Tmpfs, []) => Upper::Tmpfs {
            size_bytes: spec.memory_bytes,
        },
        (_, [overlay]) => Upper::Directory {
            path: overlay.path.clone(),
        },
        (_, []) => Upper::None,
    };
    if upper == Upper::None && read_only.is_empty() && bind_points.is_empty() {
        return Ok(Root::Directory {
            path,
            read_only: spec.writable != Writable::InPlace,
        });
    }
    if spec.writable == Writable::InPlace {
        return Err(PlanError::Conflict(
            "`--writable` changes the image itself and `--overlay` keeps it as it is; choose one",
        ));
    }
    if upper == Upper::None && read_only.is_empty() {
        return Ok(Root::Temporary { path, bind_points });
    }
    Ok(Root::Layers {
        path,
        bind_points,
        read_only: read_only
            .into_iter()
            .map(|overlay| Layer {
                path: overlay.path.clone(),
            })
            .collect(),
        upper,
    })
}

fn command(spec: &RunSpec, rootfs: &Rootfs, facts: &Facts) -> Result<Vec<OsString>, PlanError> {
    let config = &rootfs.config;
    let arguments = match &spec.action {
        Action::Exec(command) => command.clone(),
        Action::Run(arguments) if facts.runscript => with("/.singularity.d/runscript", arguments),
        Action::Run(arguments) => {
            let arguments = if arguments.is_empty() {
                &config.cmd
            } else {
                arguments
            };
            let command: Vec<OsString> =
                config.entrypoint.iter().chain(arguments).cloned().collect();
            // As Apptainer does where an image says nothing about itself.
            if command.is_empty() {
                vec!["/bin/sh".into()]
            } else {
                command
            }
        }
        Action::Shell(Some(shell), arguments) => with(shell, arguments),
        Action::Shell(None, arguments) if facts.bash => {
            let mut command: Vec<OsString> = vec!["/bin/bash".into(), "--norc".into()];
            command.extend(arguments.iter().cloned());
            command
        }
        Action::Shell(None, arguments) => with("/bin/sh", arguments),
        Action::Start(arguments) if facts.startscript => {
            with("/.singularity.d/startscript", arguments)
        }
        // The first process of the instance holds it open without a program of the image.
        Action::Start(_) => return Ok(Vec::new()),
    };
    if arguments.is_empty() {
        return Err(PlanError::NoCommand(spec.action.word()));
    }
    Ok(arguments)
}

fn with(program: impl AsRef<OsStr>, arguments: &[OsString]) -> Vec<OsString> {
    let mut command = vec![program.as_ref().to_owned()];
    command.extend(arguments.iter().cloned());
    command
}

fn directories(spec: &RunSpec, session: &Session, rootfs: &Rootfs) -> Vec<StartDirectory> {
    let asked = |path: &Path| {
        vec![StartDirectory {
            path: path.to_owned(),
            asked: true,
        }]
    };
    if let Some(cwd) = &spec.cwd {
        return asked(cwd);
    }
    if let (Action::Run(_), Some(directory)) = (&spec.action, &rootfs.config.working_dir) {
        return asked(directory);
    }
    let home = mounts::home_inside(spec, session);
    let mut places = vec![session.cwd.clone(), home, PathBuf::from("/")];
    places.dedup();
    places
        .into_iter()
        .map(|path| StartDirectory { path, asked: false })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Home, Isolate, MountRequest, Omit};

    fn alice() -> Session {
        Session {
            uid: 1000,
            gid: 1000,
            groups: vec![1000],
            user: "alice".into(),
            home: "/home/alice".into(),
            cwd: "/work/project".into(),
            env: Vec::new(),
        }
    }

    fn spec() -> RunSpec {
        RunSpec::new(Action::Exec(vec!["true".into()]))
    }

    /// Facts of a host and an image that have everything, but for what `missing` names in the image.
    fn facts(spec: &RunSpec, session: &Session, missing: &[(&str, Option<u32>)]) -> Facts {
        let wanted = mounts::wanted(spec, session);
        let kind_of = |path: &Path| {
            let is_file = path.starts_with("/etc") || path.extension().is_some();
            if is_file { Kind::File } else { Kind::Directory }
        };
        let place_of = |mount: &Wanted| {
            let gone = missing
                .iter()
                .find(|(path, _)| mount.target == Path::new(path));
            match gone {
                Some(&(_, empty)) => Place::Missing {
                    parent: mount.target.parent().expect("is below /").to_owned(),
                    rest: mount.target.file_name().expect("has a name").into(),
                    empty,
                },
                None => Place::There(kind_of(&mount.target)),
            }
        };
        Facts {
            sources: wanted
                .iter()
                .map(|mount| mount.host_path().map(|path| Ok(kind_of(path))))
                .collect(),
            places: wanted.iter().map(|mount| Some(place_of(mount))).collect(),
            passwd: b"root:x:0:0:root:/root:/bin/sh\n".to_vec(),
            group: b"root:x:0:\n".to_vec(),
            ..Facts::default()
        }
    }

    fn rootfs() -> Rootfs {
        Rootfs {
            path: "/images/x".into(),
            name: "x".into(),
            ..Rootfs::default()
        }
    }

    /// The plan's mounts as text, one a line.
    fn shown(plan: &RunPlan) -> String {
        let mut text = match &plan.root {
            Root::Directory { read_only, .. } => format!("/ directory read_only={read_only}\n"),
            Root::Temporary { bind_points, .. } => format!(
                "/ temporary {:?}\n",
                bind_points
                    .iter()
                    .map(|point| &point.path)
                    .collect::<Vec<_>>()
            ),
            Root::Layers {
                bind_points, upper, ..
            } => format!(
                "/ layers {upper:?} {:?}\n",
                bind_points
                    .iter()
                    .map(|point| &point.path)
                    .collect::<Vec<_>>()
            ),
        };
        for mount in &plan.mounts {
            let source = match &mount.source {
                Source::Bind { path } => path.display().to_string(),
                Source::Generated { .. } => "generated".to_owned(),
                Source::Link { to } => format!("-> {}", to.display()),
                Source::HostDir { path, .. } => format!("host dir {}", path.display()),
                other => format!("{other:?}")
                    .split([' ', '{'])
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            };
            let limits = if mount.limits.read_only { " ro" } else { "" };
            let make = if mount.make.is_some() { " made" } else { "" };
            text.push_str(&format!(
                "{} {source}{limits}{make}\n",
                mount.target.display()
            ));
        }
        text
    }

    #[track_caller]
    fn check(spec: &RunSpec, session: &Session, missing: &[(&str, Option<u32>)], expected: &str) {
        let facts = facts(spec, session, missing);
        let plan = plan(spec, session, &rootfs(), &facts).expect("can be planned");
        assert_eq!(shown(&plan), expected);
    }

    #[test]
    fn the_default_mounts_are_apptainers_in_this_order() {
        check(
            &spec(),
            &alice(),
            &[],
            "/ directory read_only=true\n/proc /proc\n/sys /sys\n/dev /dev\n/etc/passwd generated\n\
             /etc/group generated\n/etc/resolv.conf /etc/resolv.conf\n/etc/localtime /etc/localtime\n\
             /etc/hosts /etc/hosts\n/tmp /tmp\n/var/tmp /var/tmp\n/home/alice /home/alice\n\
             /work/project /work/project\n",
        );
    }

    #[test]
    fn a_home_missing_in_an_empty_directory_needs_no_overlay() {
        let mut spec = spec();
        spec.no_mount = vec![
            Omit::Proc,
            Omit::Sys,
            Omit::Dev,
            Omit::Tmp,
            Omit::BindPaths,
            Omit::Cwd,
        ];
        check(
            &spec,
            &alice(),
            &[("/home/alice", Some(0o755))],
            "/ directory read_only=true\n/etc/passwd generated\n/etc/group generated\n\
             /etc/resolv.conf /etc/resolv.conf\n/home BindPoints ro\n/home/alice /home/alice made\n",
        );
        check(
            &spec,
            &alice(),
            &[("/home/alice", None)],
            "/ directory read_only=true\n/home Skeleton ro\n/etc/passwd generated\n/etc/group generated\n\
             /etc/resolv.conf /etc/resolv.conf\n/home/alice /home/alice\n",
        );
    }

    #[test]
    fn only_a_bind_point_directly_below_the_root_changes_what_the_root_is_made_of() {
        let mut spec = spec();
        spec.no_mount = vec![
            Omit::Proc,
            Omit::Sys,
            Omit::Dev,
            Omit::Tmp,
            Omit::BindPaths,
            Omit::Home,
        ];
        let session = Session {
            cwd: "/scratch".into(),
            ..alice()
        };
        check(
            &spec,
            &session,
            &[("/scratch", None), ("/etc/resolv.conf", None)],
            "/ temporary [\"/scratch\"]\n/etc Skeleton ro\n/etc/passwd generated\n/etc/group generated\n\
             /etc/resolv.conf /etc/resolv.conf\n/scratch /scratch\n",
        );
        // Where something is laid over the whole image in any case, bind points go with it.
        spec.writable = Writable::Tmpfs;
        check(
            &spec,
            &session,
            &[("/scratch", None), ("/etc/resolv.conf", None)],
            "/ layers Tmpfs { size_bytes: None } [\"/etc/resolv.conf\", \"/scratch\"]\n/etc/passwd generated\n\
             /etc/group generated\n/etc/resolv.conf /etc/resolv.conf\n/scratch /scratch\n",
        );
    }

    #[test]
    fn a_contained_container_takes_little_of_the_host() {
        let mut spec = spec();
        spec.contain = true;
        spec.isolate = Isolate {
            pids: Pids::WithInit,
            ipc: true,
            ..Isolate::default()
        };
        spec.no_mount = vec![Omit::Sys, Omit::BindPaths, Omit::Devpts];
        spec.home = Home::None;
        check(
            &spec,
            &alice(),
            &[],
            "/ directory read_only=true\n/proc Proc\n/dev Tmpfs\n/dev/null /dev/null made\n\
             /dev/zero /dev/zero made\n/dev/full /dev/full made\n/dev/random /dev/random made\n\
             /dev/urandom /dev/urandom made\n/dev/tty /dev/tty made\n/dev/shm Tmpfs made\n\
             /dev/mqueue Mqueue made\n/dev/fd -> /proc/self/fd made\n/dev/stdin -> /proc/self/fd/0 made\n\
             /dev/stdout -> /proc/self/fd/1 made\n/dev/stderr -> /proc/self/fd/2 made\n\
             /etc/passwd generated\n/etc/group generated\n/etc/resolv.conf /etc/resolv.conf\n\
             /tmp Tmpfs\n/var/tmp Tmpfs\n",
        );
    }

    #[test]
    fn a_current_directory_below_home_or_in_the_system_is_not_mounted_again() {
        let has_cwd = |cwd: &str| {
            let session = Session {
                cwd: cwd.into(),
                ..alice()
            };
            mounts::wanted(&spec(), &session)
                .iter()
                .any(|mount| mount.reason == "current directory")
        };
        assert!(has_cwd("/work"));
        assert!(has_cwd("/opt/data"));
        for place in ["/home/alice/x", "/tmp/x", "/usr", "/", "/proc/self", "/etc"] {
            assert!(!has_cwd(place), "{place}");
        }
    }

    #[test]
    fn what_was_asked_for_and_is_not_there_is_an_error_and_a_default_is_a_notice() {
        let mut spec = spec();
        spec.mounts = vec![MountRequest::Bind {
            source: "/data".into(),
            target: "/data".into(),
            read_only: false,
        }];
        let session = alice();
        let mut facts = facts(&spec, &session, &[]);
        let wanted = mounts::wanted(&spec, &session);
        let at = |target: &str| {
            wanted
                .iter()
                .position(|mount| mount.target == Path::new(target))
                .expect("is wanted")
        };
        facts.sources[at("/home/alice")] = Some(Err("Permission denied".into()));
        facts.sources[at("/etc/hosts")] = Some(Err("No such file or directory".into()));
        let planned = plan(&spec, &session, &rootfs(), &facts).expect("defaults may be left out");
        assert_eq!(
            planned.notices,
            ["left out: cannot bind /home/alice to /home/alice: Permission denied"]
        );
        assert_eq!(planned.details.len(), 1, "{:?}", planned.details);
        facts.sources[at("/data")] = Some(Err("No such file or directory".into()));
        let error = plan(&spec, &session, &rootfs(), &facts).expect_err("was asked for");
        assert_eq!(
            error.to_string(),
            "cannot bind /data to /data: No such file or directory"
        );
    }

    #[test]
    fn root_is_told_what_stays_root_s_where_another_id_was_asked_for() {
        let root = Session {
            uid: 0,
            gid: 0,
            user: "root".into(),
            home: "/root".into(),
            ..alice()
        };
        let told = |gids: &[u32], user: bool| {
            let mut spec = spec();
            spec.identity.uid = Some(1234);
            spec.identity.gids = gids.to_vec();
            spec.isolate.user = user;
            let facts = facts(&spec, &root, &[]);
            let plan = plan(&spec, &root, &rootfs(), &facts).expect("can be planned");
            plan.notices.join("\n")
        };
        assert!(told(&[], false).contains("keeps root's groups"));
        assert_eq!(told(&[5], false), "");
        assert!(told(&[5], true).contains("have no effect in a user namespace"));
    }

    #[test]
    fn root_needs_no_user_namespace_unless_it_may_not_mount() {
        let root = Session {
            uid: 0,
            gid: 0,
            user: "root".into(),
            home: "/root".into(),
            ..alice()
        };
        let mut facts = facts(&spec(), &root, &[]);
        let planned = |facts: &Facts, spec: &RunSpec, session: &Session| {
            let plan = plan(spec, session, &rootfs(), facts).expect("can be planned");
            (
                plan.namespaces.user,
                plan.identity.mapping,
                plan.identity.capabilities,
            )
        };
        let single = |uid| Mapping::Single {
            outside_uid: uid,
            outside_gid: uid,
        };
        let all = Capabilities::OfCaller {
            none: false,
            add: Vec::new(),
            drop: Vec::new(),
        };
        assert_eq!(planned(&facts, &spec(), &root), (false, Mapping::None, all));
        facts.powerless_root = true;
        assert_eq!(
            planned(&facts, &spec(), &root),
            (true, single(0), Capabilities::OfNamespace)
        );
        facts.powerless_root = false;
        assert_eq!(
            planned(&facts, &spec(), &alice()),
            (true, single(1000), Capabilities::None)
        );
        let mut fake = spec();
        fake.identity.fakeroot = true;
        assert_eq!(
            planned(&facts, &fake, &alice()),
            (true, single(1000), Capabilities::OfNamespace)
        );
    }

    #[test]
    fn layers_that_exclude_each_other_are_refused() {
        let overlay = |read_only| OverlayDir {
            path: "/o".into(),
            read_only,
        };
        let refused = |writable, overlays: Vec<OverlayDir>| {
            let spec = RunSpec {
                writable,
                overlays,
                ..spec()
            };
            root(&spec, &rootfs(), Vec::new()).is_err()
        };
        assert!(refused(
            Writable::ReadOnly,
            vec![overlay(false), overlay(false)]
        ));
        assert!(refused(Writable::InPlace, vec![overlay(false)]));
        assert!(refused(Writable::InPlace, vec![overlay(true)]));
        assert!(refused(Writable::Tmpfs, vec![overlay(false)]));
        assert!(!refused(Writable::Tmpfs, vec![overlay(true)]));
        assert!(!refused(
            Writable::ReadOnly,
            vec![overlay(true), overlay(false)]
        ));
    }
}
