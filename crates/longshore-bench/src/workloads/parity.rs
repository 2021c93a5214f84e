//! The same programs, byte for byte, on the host and in a container of the host's own files.
//!
//! Three tasks: `start-up` runs a program that ends at once; `compute` keeps one CPU busy in the
//! host's own interpreter; `small-files` imports a large part of its library and opens, stats and
//! reads thousands of small files. Each task prints what it worked out, and outputs must agree.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use longshore_host::{find_program, load};
use longshore_study::{Axis, Metric, Probe, Reading, Setting, Study, Variant, show};
use longshore_study::{Workload, WorkloadError};

use super::start::known_runtime;
use super::{LIMIT, label, program_metrics, read_program};
use crate::host_image::{HostImage, HostImageError, Layout, interpreter};
use crate::loopback_registry::LoopbackRegistry;
use crate::process::{ProgramError, Programs};
use crate::{Bench, SetupError, words};

/// Settings besides `kind`.
pub(crate) const KEYS: &[&str] = &["image", "registry"];

const TASKS: &[&str] = &["start-up", "compute", "small-files"];

/// Where the task's program and its list of files lie in the image.
const PLACE: &str = "/opt/longshore";

/// At most so many files are read by `small-files`.
const MAX_FILES: usize = 1500;

/// An interpreter of the host with what it needs.
struct Interpreter {
    program: PathBuf,
    /// Words before the task's program.
    flags: &'static [&'static str],
    script: &'static str,
    extension: &'static str,
    library: Vec<PathBuf>,
    version: String,
}

/// The `parity` workload.
///
/// The axis `task` has the tasks above; the axis `where` has `host`, `container`, known runtimes, or
/// templates with `{image}` and `{cmd}`. With `image`, that image is used in place of one made from
/// the host, and only programs that it has can be compared. `registry` names the registry server.
pub(crate) struct ParityWorkload<'b> {
    bench: Bench<'b>,
    programs: Programs,
    places: Axis,
    given_image: Option<String>,
    registry: Option<String>,
    ready: Option<Ready>,
    argv: BTreeMap<String, Vec<String>>,
    facts: Vec<(String, String)>,
}

/// What was made once for all variants.
struct Ready {
    /// Directory image or reference; the reason where none could be made.
    image: Result<String, String>,
    /// Task program and its list, on the host.
    host_folder: PathBuf,
    interpreter: Result<Interpreter, String>,
    true_program: String,
}

impl<'b> ParityWorkload<'b> {
    pub(crate) fn new(study: &Study, bench: Bench<'b>) -> Result<ParityWorkload<'b>, SetupError> {
        let axis = |name: &str| study.axes.iter().find(|axis| axis.name == name);
        let (Some(tasks), Some(places)) = (axis("task"), axis("where")) else {
            return Err(SetupError::Setting(
                "the workload `parity` needs the axes `task` and `where`".to_owned(),
            ));
        };
        for (task, _) in &tasks.values {
            if !TASKS.contains(&task.as_str()) {
                return Err(SetupError::Setting(format!(
                    "there is no task `{task}`; there is `{}`",
                    TASKS.join("`, `")
                )));
            }
        }
        for (place, value) in &places.values {
            let template = value.to_string();
            if template == *place && place != "container" && known_runtime(place).is_none() {
                return Err(SetupError::Setting(format!(
                    "there is no place `{place}`; there is `host`, `container`, a known runtime, or \
                     `{place} = \"COMMAND {{image}} {{cmd}}\"`"
                )));
            }
        }
        let text = |name: &str| study.workload.get(name).map(Setting::to_string);
        let mut programs = Programs::new(bench.session, LIMIT)?;
        let given_image = text("image");
        if given_image.is_none() {
            // What is pulled for the study is kept apart from the user's images and goes with it.
            programs.set_env("LONGSHORE_CACHEDIR", bench.work.join("cache"));
        }
        Ok(ParityWorkload {
            programs,
            places: places.clone(),
            given_image,
            registry: text("registry"),
            ready: None,
            argv: BTreeMap::new(),
            facts: Vec::new(),
            bench,
        })
    }

    fn path(&self) -> &OsStr {
        self.bench.session.var("PATH").unwrap_or_default()
    }

    fn fact(&mut self, name: &str, text: impl Into<String>) {
        self.facts.push((name.to_owned(), text.into()));
    }

    /// Makes the task programs, the image, and gets the image the way a user would.
    fn make(&mut self) -> Result<Ready, WorkloadError> {
        if let Some(load) = load() {
            self.fact("load before", format!("{load:.2}"));
        }
        let interpreter = find_interpreter(self.path());
        let true_program = find_program("true", &search_path(self.path()))
            .map_or_else(|| "/bin/true".to_owned(), |path| path.display().to_string());
        let host_folder = self.bench.work.join("host");
        if let Ok(found) = &interpreter {
            let text = format!("{} ({})", found.program.display(), found.version);
            self.fact("interpreter", text);
        }
        let mut maker = HostImage::default();
        let made = self.fill(&mut maker, interpreter.as_ref().ok(), &true_program);
        let files = made.map_err(|error| WorkloadError::Broken {
            message: told("cannot gather files of the host", &error),
        })?;
        if let Ok(found) = &interpreter {
            write_task(&host_folder, found, &files)?;
        }
        let image = match self.given_image.clone() {
            Some(image) => {
                self.fact("image", image.clone());
                Ok(image)
            }
            None => self.make_image(maker, files.len())?,
        };
        Ok(Ready {
            image,
            host_folder,
            interpreter,
            true_program,
        })
    }

    /// Puts everything that the tasks need into the image; gives the files that are read.
    fn fill(
        &self,
        image: &mut HostImage,
        interpreter: Option<&Interpreter>,
        true_program: &str,
    ) -> Result<Vec<PathBuf>, HostImageError> {
        // Everything that a runtime binds over is there, so that none has to make room first.
        for (folder, mode) in [
            ("/dev", 0o755),
            ("/etc", 0o755),
            ("/home", 0o755),
            ("/mnt", 0o755),
            ("/opt", 0o755),
            ("/proc", 0o755),
            ("/root", 0o755),
            ("/run", 0o755),
            ("/sys", 0o755),
            ("/tmp", 0o1777),
            ("/var", 0o755),
            ("/var/tmp", 0o1777),
        ] {
            image.folder(folder, mode);
        }
        image.made("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644);
        image.made("/etc/group", "root:x:0:\n", 0o644);
        image.made("/etc/hosts", "127.0.0.1 localhost\n", 0o644);
        image.made("/etc/resolv.conf", "", 0o644);
        image.made("/etc/nsswitch.conf", "passwd: files\ngroup: files\n", 0o644);
        image.made("/etc/localtime", "", 0o644);
        // The loader finds libraries as on the host only with the host's own list of them.
        let cache = Path::new("/etc/ld.so.cache");
        if cache.exists() {
            image.add(cache)?;
        }
        image.add_program(Path::new("/bin/sh"))?;
        image.add_program(Path::new(true_program))?;
        for name in ["ls", "cat", "id", "uname"] {
            if let Some(program) = find_program(name, &search_path(self.path())) {
                image.add_program(&program)?;
            }
        }
        image.end_layer();
        let Some(found) = interpreter else {
            return Ok(Vec::new());
        };
        image.add_program(&found.program)?;
        let loader = interpreter_of(&found.program)?;
        let mut files = Vec::new();
        for folder in &found.library {
            files.extend(image.add_tree(folder, &in_library)?);
        }
        for file in &files {
            // Extension modules bring libraries of their own (OpenSSL, SQLite); one that cannot be
            // loaded on the host either is not missed.
            if file.extension() == Some(OsStr::new("so"))
                && let Some(loader) = &loader
            {
                let _ = image.add_libraries(loader, file);
            }
        }
        image.end_layer();
        files.retain(|file| {
            let text = file.extension().and_then(OsStr::to_str);
            matches!(text, Some("py" | "pl" | "pm" | "pyc" | "pod" | "al" | "ph"))
                && !file.as_os_str().as_bytes().contains(&b'\n')
        });
        files.truncate(MAX_FILES);
        let script = format!("{PLACE}/parity.{}", found.extension);
        image.made(&script, found.script, 0o644);
        image.made(&format!("{PLACE}/files"), listing(&files), 0o644);
        image.end_layer();
        Ok(files)
    }

    /// Writes the image and pulls it: from a loopback registry where one is installed.
    fn make_image(
        &mut self,
        maker: HostImage,
        files: usize,
    ) -> Result<Result<String, String>, WorkloadError> {
        let begun = Instant::now();
        let programs = &self.programs;
        let layout = maker
            .write::<MakeError>(&self.bench.work.join("oci"), "1", &|| {
                programs.check_stop().map_err(MakeError::Stop)
            })
            .map_err(|error| match error {
                MakeError::Stop(error) => error,
                MakeError::Image(error) => WorkloadError::Broken {
                    message: told("cannot make an image", &error),
                },
            })?;
        let size = show(layout.layer_bytes as f64, "B");
        (self.bench.tell)(&format!(
            "made an image from this host's files: {} layers, {} entries, {size} ({:.1} s)",
            layout.layers,
            layout.entries,
            begun.elapsed().as_secs_f64()
        ));
        self.fact(
            "image",
            format!(
                "made from this host's files: {} layers, {} entries, {size}, {}",
                layout.layers, layout.entries, layout.digest
            ),
        );
        self.fact("files read by small-files", files.to_string());
        let tree = self.bench.work.join("image");
        let (source, served) = match self.serve(&layout) {
            Some(Ok((registry, reference))) => (reference, Some(registry)),
            other => {
                if let Some(Err(reason)) = other {
                    (self.bench.tell)(&format!("no registry: {reason}; importing the files"));
                }
                (
                    format!("oci:{}:{}", layout.path.display(), layout.tag),
                    None,
                )
            }
        };
        let argv = [
            self.bench.longshore.display().to_string(),
            "pull".to_owned(),
            "--sandbox".to_owned(),
            tree.display().to_string(),
            source.clone(),
        ];
        let outcome = match self.programs.run(&argv) {
            Ok(outcome) => outcome,
            Err(ProgramError::Stop(error)) => return Err(error),
            Err(ProgramError::NotStarted(reason)) => return Ok(Err(reason)),
        };
        drop(served);
        if !outcome.status.success() {
            return Ok(Err(format!(
                "`{}` failed: {}",
                words::shown(&argv),
                outcome.complaint
            )));
        }
        let seconds = outcome.wall.as_secs_f64();
        (self.bench.tell)(&format!("pulled {source} in {seconds:.1} s"));
        self.fact(
            "pull",
            format!("{} ({seconds:.2} s, once)", words::shown(&argv)),
        );
        Ok(Ok(tree.display().to_string()))
    }

    /// Serves the image on the loopback; nothing where no server is installed.
    fn serve(&self, layout: &Layout) -> Option<Result<(LoopbackRegistry, String), String>> {
        let name = self.registry.as_deref().unwrap_or("docker-registry");
        let program = find_program(name, &search_path(self.path()));
        let Some(program) = program else {
            // Asked for by name, its absence is told; by default it is just not there.
            return self
                .registry
                .as_ref()
                .map(|name| Err(format!("`{name}` is not installed")));
        };
        let folder = self.bench.work.join("registry");
        let served = LoopbackRegistry::start(&program, &folder).and_then(|registry| {
            let reference = registry.push(layout, "longshore/quickstart")?;
            Ok((registry, reference))
        });
        Some(served.map_err(|error| told("cannot use a loopback registry", &error)))
    }

    /// The command of a variant, or why there is none.
    fn command(&self, ready: &Ready, task: &str, place: &str) -> Result<Vec<String>, String> {
        let given = self
            .places
            .value(place)
            .map(Setting::to_string)
            .filter(|given| given != place);
        let template = match (&given, place) {
            (Some(given), _) => given.clone(),
            (None, "container") => "{longshore} exec {image} {cmd}".to_owned(),
            (None, other) => known_runtime(other)
                .map(|runtime| runtime.template.to_owned())
                .ok_or_else(|| format!("`{other}` is not a known place"))?,
        };
        let template = words::split(&template)?;
        let inside = template.iter().any(|word| word.contains("{image}"));
        let image = match (&ready.image, inside) {
            (Ok(image), _) => image.clone(),
            (Err(_), false) => String::new(),
            (Err(reason), true) => return Err(reason.clone()),
        };
        let command = if task == "start-up" {
            vec![ready.true_program.clone()]
        } else {
            let found = ready.interpreter.as_ref().map_err(Clone::clone)?;
            if inside && self.given_image.is_some() {
                return Err("the image given has not the host's interpreter and files".to_owned());
            }
            let folder = if inside {
                PathBuf::from(PLACE)
            } else {
                ready.host_folder.clone()
            };
            let file = |name: &str| folder.join(name).display().to_string();
            let mut words = vec![found.program.display().to_string()];
            words.extend(found.flags.iter().map(|flag| (*flag).to_owned()));
            words.push(file(&format!("parity.{}", found.extension)));
            words.push(task.to_owned());
            words.push(file("files"));
            words
        };
        let values = [
            (
                "longshore",
                vec![self.bench.longshore.display().to_string()],
            ),
            ("image", vec![image]),
            ("cmd", command),
        ];
        let mut argv = words::fill(&template, &values);
        let program = argv.first().ok_or("its template is empty")?;
        argv[0] = find_program(program, self.path())
            .ok_or_else(|| format!("`{program}` is not installed"))?
            .display()
            .to_string();
        Ok(argv)
    }
}

impl Workload for ParityWorkload<'_> {
    fn kind(&self) -> &str {
        "parity"
    }

    fn metrics(&self) -> Vec<Metric> {
        program_metrics()
    }

    fn facts(&self) -> Vec<(String, String)> {
        let commands = self
            .argv
            .iter()
            .map(|(variant, argv)| (variant.clone(), words::shown(argv)));
        self.facts.iter().cloned().chain(commands).collect()
    }

    fn prepare(&mut self, variant: &Variant) -> Result<Result<(), String>, WorkloadError> {
        let (task, place) = (label(variant, "task")?, label(variant, "where")?);
        let ready = match self.ready.take() {
            Some(ready) => ready,
            None => self.make()?,
        };
        let command = self.command(&ready, task, place);
        self.ready = Some(ready);
        Ok(command.map(|argv| {
            self.argv.insert(variant.labels(), argv);
        }))
    }

    fn measure(&mut self, variant: &Variant) -> Result<Reading, WorkloadError> {
        let argv = self
            .argv
            .get(&variant.labels())
            .ok_or_else(|| WorkloadError::Broken {
                message: format!("{variant} was not made ready"),
            })?;
        read_program(&self.programs, argv, 0)
    }

    fn surroundings(&mut self) -> Vec<Probe> {
        self.programs.surroundings()
    }
}

enum MakeError {
    Image(HostImageError),
    Stop(WorkloadError),
}

impl From<HostImageError> for MakeError {
    fn from(error: HostImageError) -> MakeError {
        MakeError::Image(error)
    }
}

/// An error with its causes in one line.
fn told(what: &str, error: &dyn std::error::Error) -> String {
    let mut text = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// The system's own folders first: an interpreter there can be read by everybody.
fn search_path(path: &OsStr) -> OsString {
    let mut search = OsString::from("/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin:");
    search.push(path);
    search
}

fn interpreter_of(program: &Path) -> Result<Option<PathBuf>, HostImageError> {
    interpreter(program).map_err(|source| HostImageError::Read {
        path: program.to_owned(),
        source,
    })
}

/// Finds Python, else Perl, with the folders of its library.
fn find_interpreter(path: &OsStr) -> Result<Interpreter, String> {
    let search = search_path(path);
    // The program itself, behind links and start scripts, and where its library lies.
    const PYTHON: &str = "import os, sys; print(os.path.realpath(sys.executable)); \
                          print('Python', sys.version.split()[0]); print(os.path.dirname(os.__file__))";
    const PERL: &str = r#"print "$^X\n", "Perl $^V\n", map { "$_\n" } grep { -d } @INC"#;
    let mut reasons = Vec::new();
    if let Some(program) = find_program("python3", &search) {
        match asked(&program, &["-I", "-S", "-c", PYTHON]) {
            Ok((program, version, library)) => {
                return Ok(Interpreter {
                    program,
                    flags: &["-I", "-S", "-B"],
                    script: include_str!("parity.py"),
                    extension: "py",
                    library,
                    version,
                });
            }
            Err(reason) => reasons.push(reason),
        }
    }
    if let Some(program) = find_program("perl", &search) {
        match asked(&program, &["-e", PERL]) {
            Ok((program, version, mut library)) => {
                // Local additions and add-on modules are no part of the interpreter.
                library.retain(|folder| !folder.starts_with("/usr/local") && folder.is_absolute());
                return Ok(Interpreter {
                    program,
                    flags: &[],
                    script: include_str!("parity.pl"),
                    extension: "pl",
                    library,
                    version,
                });
            }
            Err(reason) => reasons.push(reason),
        }
    }
    if reasons.is_empty() {
        reasons.push("neither python3 nor perl is installed".to_owned());
    }
    Err(reasons.join("; "))
}

/// Program, version and library folders, as an interpreter says them line by line.
fn asked(program: &Path, arguments: &[&str]) -> Result<(PathBuf, String, Vec<PathBuf>), String> {
    let name = program.display();
    let said = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    let text = String::from_utf8(said.stdout).map_err(|_| format!("{name} has odd paths"))?;
    let mut lines = text.lines();
    let (Some(real), Some(version), true) = (lines.next(), lines.next(), said.status.success())
    else {
        return Err(format!("{name} does not tell where its library is"));
    };
    let real = fs::canonicalize(real).map_err(|error| format!("cannot find {real}: {error}"))?;
    Ok((real, version.to_owned(), lines.map(PathBuf::from).collect()))
}

/// Leaves out what is large and never read: tests, build files, add-on packages.
fn in_library(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let unwanted = [
        "test",
        "tests",
        "site-packages",
        "dist-packages",
        "idlelib",
        "tkinter",
        "turtledemo",
        "lib2to3",
        "ensurepip",
        "unicore",
        "pod",
    ];
    !unwanted.contains(&name) && !name.starts_with("config-")
}

fn listing(files: &[PathBuf]) -> Vec<u8> {
    let names: Vec<&[u8]> = files
        .iter()
        .map(|path| path.as_os_str().as_bytes())
        .collect();
    names.join(&b'\n')
}

/// Writes the task's program and list for the host's side.
fn write_task(folder: &Path, found: &Interpreter, files: &[PathBuf]) -> Result<(), WorkloadError> {
    let write = || {
        fs::create_dir_all(folder)?;
        let script = format!("parity.{}", found.extension);
        fs::write(folder.join(script), found.script)?;
        fs::write(folder.join("files"), listing(files))
    };
    write().map_err(|error: std::io::Error| WorkloadError::Broken {
        message: format!("cannot write {}: {error}", folder.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_unread_parts_of_a_library_are_left_out() {
        assert!(in_library(Path::new("/usr/lib/python3.11/json/decoder.py")));
        assert!(!in_library(Path::new("/usr/lib/python3.11/test")));
        assert!(!in_library(Path::new("/usr/lib/python3.11/config-3.11-x")));
    }

    #[test]
    fn an_interpreter_of_this_machine_is_found_with_its_library() {
        match find_interpreter(OsStr::new("/usr/bin:/bin")) {
            Ok(found) => assert!(found.library.iter().any(|folder| folder.is_dir())),
            Err(reason) => assert!(reason.contains("neither"), "{reason}"),
        }
    }
}
