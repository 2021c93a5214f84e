//! Starting a container: the same small command on the host and through several runtimes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use longshore_host::find_program;
use longshore_study::{Axis, Metric, Probe, Reading, Setting, Study, Variant};
use longshore_study::{Workload, WorkloadError};
use serde_json::json;

use super::{LIMIT, label, program_metrics, read_program};
use crate::process::Programs;
use crate::{Bench, SetupError, words};

/// Settings besides `kind`.
pub(crate) const KEYS: &[&str] = &["image", "command"];

/// A container runtime that is known by its name.
#[derive(Clone, Copy, Debug)]
pub struct KnownRuntime {
    /// Its name, which is also that of its program.
    pub name: &'static str,
    /// How it runs `{cmd}` in the directory image `{image}`, as its manual recommends for speed.
    pub template: &'static str,
    /// What a reader should know when comparing.
    pub remark: &'static str,
}

/// The runtimes that are compared where they are installed, `host` first.
pub const KNOWN_RUNTIMES: &[KnownRuntime] = &[
    KnownRuntime {
        name: "host",
        template: "{cmd}",
        remark: "no container",
    },
    KnownRuntime {
        name: "longshore",
        template: "{longshore} exec {image} {cmd}",
        remark: "",
    },
    KnownRuntime {
        name: "unshare",
        template: "unshare -Urm {cmd}",
        remark: "user and mount namespace only, no image: the floor",
    },
    KnownRuntime {
        name: "bwrap",
        template: "bwrap --ro-bind {image} / --dev-bind /dev /dev --proc /proc {cmd}",
        remark: "",
    },
    KnownRuntime {
        name: "ch-run",
        template: "ch-run {image} -- {cmd}",
        remark: "",
    },
    KnownRuntime {
        name: "crun",
        template: "crun --root {state} --cgroup-manager=disabled run -b {bundle} longshore-bench",
        remark: "",
    },
    KnownRuntime {
        name: "apptainer",
        template: "apptainer exec {image} {cmd}",
        remark: "",
    },
    KnownRuntime {
        name: "podman",
        template: "podman run --rm --network=host --cgroups=disabled --ulimit nofile=1024:1024 \
                   --ulimit nproc=4096:4096 --rootfs {image} {cmd}",
        remark: "",
    },
];

/// The runtime of that name, if it is known.
pub fn known_runtime(name: &str) -> Option<&'static KnownRuntime> {
    KNOWN_RUNTIMES.iter().find(|runtime| runtime.name == name)
}

/// The `start` workload.
///
/// `image` is a directory image, `command` what is run in it (`/bin/true` by default); the axis
/// `runtime` has known names, or templates with `{image}` and `{cmd}`.
pub(crate) struct StartWorkload {
    programs: Programs,
    image: String,
    command: Vec<String>,
    runtimes: Axis,
    longshore: PathBuf,
    work: PathBuf,
    path: OsString,
    argv: BTreeMap<String, Vec<String>>,
}

impl StartWorkload {
    pub(crate) fn new(study: &Study, bench: &Bench<'_>) -> Result<StartWorkload, SetupError> {
        let text = |name: &str| study.workload.get(name).map(Setting::to_string);
        let image = text("image").ok_or_else(|| {
            SetupError::Setting(
                "the workload `start` needs `image`, a directory image or a reference".to_owned(),
            )
        })?;
        let command = match study.workload.get("command") {
            None => vec!["/bin/true".to_owned()],
            Some(Setting::List(words)) => words.clone(),
            Some(other) => words::split(&other.to_string()).map_err(SetupError::Setting)?,
        };
        let runtimes = study
            .axes
            .iter()
            .find(|axis| axis.name == "runtime")
            .cloned()
            .ok_or_else(|| {
                SetupError::Setting(
                    "the workload `start` needs the axis `runtime`, for instance \
                     `runtime = [\"host\", \"longshore\"]`"
                        .to_owned(),
                )
            })?;
        for (name, template) in &runtimes.values {
            let template = template.to_string();
            if template == *name && known_runtime(name).is_none() {
                let known: Vec<&str> = KNOWN_RUNTIMES.iter().map(|r| r.name).collect();
                return Err(SetupError::Setting(format!(
                    "there is no known runtime `{name}`; there is `{}`, or give a template: \
                     `{name}=COMMAND {{image}} {{cmd}}`",
                    known.join("`, `")
                )));
            }
            words::split(&template).map_err(SetupError::Setting)?;
        }
        // A relative name of a directory would be read as a registry reference by some runtimes.
        let image = match fs::canonicalize(bench.session.cwd.join(&image)) {
            Ok(path) if path.is_dir() => path.display().to_string(),
            _ => image,
        };
        Ok(StartWorkload {
            programs: Programs::new(bench.session, LIMIT)?,
            image,
            command,
            runtimes,
            longshore: bench.longshore.to_owned(),
            work: bench.work.to_owned(),
            path: bench.session.var("PATH").unwrap_or_default().to_owned(),
            argv: BTreeMap::new(),
        })
    }

    /// The command line of a runtime, or why it cannot be used here.
    fn command_of(&self, name: &str) -> Result<Vec<String>, String> {
        let given = self
            .runtimes
            .value(name)
            .map(Setting::to_string)
            .filter(|given| given != name);
        let template = match &given {
            Some(template) => template.as_str(),
            None => known_runtime(name)
                .map(|runtime| runtime.template)
                .ok_or_else(|| format!("`{name}` is not a known runtime"))?,
        };
        let words = words::split(template)?;
        let needs_directory = given.is_none() && !["host", "longshore", "unshare"].contains(&name);
        if needs_directory && !Path::new(&self.image).is_dir() {
            return Err(format!(
                "{name} needs a directory image, and `{}` is none; make one with \
                 `longshore pull --sandbox DIR IMAGE`",
                self.image
            ));
        }
        let bundle = self.work.join("bundle");
        if words.iter().any(|word| word.contains("{bundle}")) {
            self.write_bundle(&bundle)
                .map_err(|error| format!("cannot write {}: {error}", bundle.display()))?;
        }
        let one = |text: String| vec![text];
        let values = [
            ("longshore", one(self.longshore.display().to_string())),
            ("image", one(self.image.clone())),
            ("bundle", one(bundle.display().to_string())),
            ("state", one(self.work.join("state").display().to_string())),
            ("cmd", self.command.clone()),
        ];
        let argv = words::fill(&words, &values);
        let program = argv.first().ok_or("its template is empty")?;
        // Looked up once, so that no search of the PATH is part of the time.
        let found = find_program(program, &self.path)
            .ok_or_else(|| format!("`{program}` is not installed"))?;
        let mut argv = argv.clone();
        argv[0] = found.display().to_string();
        Ok(argv)
    }

    /// Writes a bundle for a runtime that takes the OCI runtime specification (version 1.0.2):
    /// the caller's own identity in a user namespace, its mounts and nothing more.
    fn write_bundle(&self, bundle: &Path) -> std::io::Result<()> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let mount = |kind: &str, to: &str| json!({"type": kind, "source": kind, "destination": to});
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": {"uid": uid, "gid": gid}, "args": self.command,
                "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "cwd": "/", "noNewPrivileges": true,
            },
            "root": {"path": self.image, "readonly": true},
            "mounts": [
                mount("proc", "/proc"),
                {"type": "bind", "source": "/dev", "destination": "/dev", "options": ["rbind"]},
            ],
            "linux": {
                "uidMappings": [{"containerID": uid, "hostID": uid, "size": 1}],
                "gidMappings": [{"containerID": gid, "hostID": gid, "size": 1}],
                "namespaces": [{"type": "user"}, {"type": "mount"}, {"type": "pid"}],
            },
        });
        fs::create_dir_all(bundle)?;
        fs::write(bundle.join("config.json"), config.to_string())
    }
}

impl Workload for StartWorkload {
    fn kind(&self) -> &str {
        "start"
    }

    fn metrics(&self) -> Vec<Metric> {
        program_metrics()
    }

    fn facts(&self) -> Vec<(String, String)> {
        let mut facts = vec![
            ("image".to_owned(), self.image.clone()),
            ("command".to_owned(), words::shown(&self.command)),
        ];
        for (name, argv) in &self.argv {
            let remark = known_runtime(name).map_or("", |runtime| runtime.remark);
            let heading = if remark.is_empty() {
                name.clone()
            } else {
                format!("{name} ({remark})")
            };
            facts.push((heading, words::shown(argv)));
        }
        facts
    }

    fn prepare(&mut self, variant: &Variant) -> Result<Result<(), String>, WorkloadError> {
        let name = label(variant, "runtime")?;
        match self.command_of(name) {
            Ok(argv) => {
                self.argv.insert(name.to_owned(), argv);
                Ok(Ok(()))
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    fn measure(&mut self, variant: &Variant) -> Result<Reading, WorkloadError> {
        let name = label(variant, "runtime")?;
        let argv = self.argv.get(name).ok_or_else(|| WorkloadError::Broken {
            message: format!("the runtime `{name}` was not made ready"),
        })?;
        read_program(&self.programs, argv, 0)
    }

    fn surroundings(&mut self) -> Vec<Probe> {
        self.programs.surroundings()
    }
}
