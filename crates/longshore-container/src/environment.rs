//! The environment inside, variable by variable with who gave it its value.
//!
//! The order is Apptainer's: the image's variables, then what was asked for (`--env-file`,
//! `APPTAINERENV_X`, `--env`), then `PREPEND_PATH` and `APPEND_PATH`, then those variables of the
//! caller that nobody has set. Values are taken byte for byte: no shell looks at them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use longshore_host::Session;
use serde::Serialize;

use crate::assignments::{self, Variables};
use crate::facts::{self, Facts};
use crate::mounts;
use crate::rootfs::Rootfs;
use crate::spec::{Action, EnvRequest, MountRequest, Origin, RunSpec};

/// Where programs are looked for when the image does not say.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A variable of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Its name.
    #[serde(serialize_with = "crate::lossy::word")]
    pub name: OsString,
    /// Its value.
    #[serde(serialize_with = "crate::lossy::word")]
    pub value: OsString,
    /// Who gave it this value.
    pub origin: Origin,
}

/// Variables of the caller that never go in: they describe the host.
const NEVER: [&str; 4] = ["HOME", "PATH", "LD_LIBRARY_PATH", "PWD"];

/// Variables of the caller that go in also with `--cleanenv`.
const ALWAYS: [&str; 12] = [
    "TERM",
    "COLORTERM",
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "ftp_proxy",
    "FTP_PROXY",
];

/// Families of variables that speak to the runtime, not to programs.
const RUNTIME: [&[u8]; 6] = [
    b"APPTAINER_",
    b"SINGULARITY_",
    b"APPTAINERENV_",
    b"SINGULARITYENV_",
    b"LONGSHORE_",
    b"LONGSHOREENV_",
];

/// The environment, and how to finish it where only the image's shell can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) variables: Vec<Variable>,
    pub(crate) shell: Option<ShellFinish>,
    pub(crate) notices: Vec<String>,
}

/// The image's environment scripts hold more than assignments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShellFinish {
    /// What `/bin/sh -c` runs; the program follows as its arguments.
    pub(crate) script: OsString,
    /// Which script made it necessary, and why.
    pub(crate) reason: String,
}

#[derive(Default)]
struct Building(Vec<Variable>);

impl Building {
    fn get(&self, name: &OsStr) -> Option<&Variable> {
        self.0.iter().find(|variable| variable.name == name)
    }

    fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>, origin: Origin) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|variable| variable.name == name) {
            Some(variable) => (variable.value, variable.origin) = (value, origin),
            None => self.0.push(Variable {
                name,
                value,
                origin,
            }),
        }
    }
}

pub(crate) fn environment(
    spec: &RunSpec,
    session: &Session,
    rootfs: &Rootfs,
    facts: &Facts,
) -> Environment {
    let mut inside = Building::default();
    let mut notices = Vec::new();
    let home = mounts::home_inside(spec, session);
    inside.set("HOME", home.as_os_str(), Origin::Longshore);
    inside.set("PATH", DEFAULT_PATH, Origin::Longshore);
    markers(spec, session, rootfs, &mut inside);
    let undecided = if facts.env_scripts.is_empty() {
        for (name, value) in &rootfs.config.env {
            inside.set(name, value, Origin::Image);
        }
        None
    } else {
        image_scripts(facts, &mut inside)
    };
    let requests: Vec<&EnvRequest> = spec
        .env
        .iter()
        .filter(|request| {
            let fixed = request.name == "HOME";
            if fixed {
                notices.push(
                    "HOME cannot be set as a variable; `--home` chooses the home directory inside"
                        .to_owned(),
                );
            }
            !fixed
        })
        .collect();
    let passing = passing_host_variables(spec, session);
    let shell = match undecided {
        None => {
            apply(&requests, &mut inside);
            for (name, value) in passing {
                if inside.get(name).is_none() {
                    inside.set(name, value, Origin::Host);
                }
            }
            None
        }
        Some(reason) => Some(ShellFinish {
            script: finishing_script(&requests, &passing, &mut inside),
            reason,
        }),
    };
    Environment {
        variables: inside.0,
        shell,
        notices,
    }
}

/// What tells programs, and other runtimes, that and where they are in a container.
fn markers(spec: &RunSpec, session: &Session, rootfs: &Rootfs, inside: &mut Building) {
    let mut set = |name: &str, value: &OsStr| inside.set(name, value, Origin::Longshore);
    let image = &rootfs.name;
    let name = Path::new(image).file_name().unwrap_or(image);
    set("LONGSHORE_CONTAINER", image);
    set("APPTAINER_CONTAINER", image);
    set("SINGULARITY_CONTAINER", image);
    set("APPTAINER_NAME", name);
    set("SINGULARITY_NAME", name);
    set("APPTAINER_COMMAND", OsStr::new(spec.action.word()));
    let script = OsStr::new("/.singularity.d/env/91-environment.sh");
    set("APPTAINER_ENVIRONMENT", script);
    set("SINGULARITY_ENVIRONMENT", script);
    let binds = bind_list(spec);
    set("APPTAINER_BIND", &binds);
    set("SINGULARITY_BIND", &binds);
    // A nested start must not repeat these binds, whose sources are not there inside; this
    // twin tells an inherited value from one that its user has set.
    set("LONGSHORE_BOUND", &binds);
    if let Some(path) = session.var("PATH") {
        set("USER_PATH", path);
    }
    if matches!(spec.action, Action::Shell(..)) {
        set("PS1", OsStr::new("Longshore> "));
    }
    if spec.clean_env {
        set("LANG", OsStr::new("C"));
    }
}

fn bind_list(spec: &RunSpec) -> OsString {
    let mut list = Vec::new();
    for mount in &spec.mounts {
        if let MountRequest::Bind {
            source,
            target,
            read_only,
        } = mount
        {
            if !list.is_empty() {
                list.push(b',');
            }
            list.extend_from_slice(source.as_os_str().as_bytes());
            if source != target || *read_only {
                list.push(b':');
                list.extend_from_slice(target.as_os_str().as_bytes());
            }
            if *read_only {
                list.extend_from_slice(b":ro");
            }
        }
    }
    OsString::from_vec(list)
}

/// Evaluates the image's scripts; where one needs a shell, gives the reason.
fn image_scripts(facts: &Facts, inside: &mut Building) -> Option<String> {
    let mut variables = Variables::default();
    for variable in &inside.0 {
        // In the image's scripts `PS1` and `LANG` are theirs to set.
        variables.set(variable.name.as_bytes(), variable.value.as_bytes().to_vec());
    }
    for (name, text) in &facts.env_scripts {
        let before = variables.clone();
        if let Err(needs) = assignments::evaluate(text, &mut variables) {
            return Some(format!(
                "/.singularity.d/env/{}, line {}: `{}`",
                name.to_string_lossy(),
                needs.line,
                needs.what
            ));
        }
        let origin = Origin::ImageScript(name.to_string_lossy().into_owned());
        for (name, value) in variables.exported() {
            if before.get(name) != Some(value) || inside.get(OsStr::from_bytes(name)).is_none() {
                inside.set(
                    OsStr::from_bytes(name),
                    OsStr::from_bytes(value),
                    origin.clone(),
                );
            }
        }
        // PATH is exported from the start, so giving it a value is enough.
        for name in ["PATH", "PS1", "LANG"] {
            let value = variables.get(name.as_bytes());
            if let Some(value) = value
                && value != before.get(name.as_bytes()).unwrap_or_default()
                && inside.get(OsStr::new(name)).is_some()
            {
                inside.set(name, OsStr::from_bytes(value), origin.clone());
            }
        }
    }
    if facts.empty_driver_folder {
        drop_from_library_path(inside, facts::DRIVER_FOLDER);
    }
    None
}

/// Takes a folder out of `LD_LIBRARY_PATH`.
///
/// An empty one costs every program some fifty system calls: the loader looks in it, and in what
/// it might hold for each kind of processor, for each library (ld.so(8)).
fn drop_from_library_path(inside: &mut Building, folder: &str) {
    let name = "LD_LIBRARY_PATH";
    let Some(variable) = inside.get(OsStr::new(name)) else {
        return;
    };
    let value = variable.value.as_bytes();
    let kept: Vec<&[u8]> = value
        .split(|&byte| byte == b':')
        .filter(|&element| element != folder.as_bytes())
        .collect();
    let (kept, origin) = (kept.join(&b':'), variable.origin.clone());
    if kept.is_empty() {
        inside.0.retain(|variable| variable.name != name);
    } else {
        inside.set(name, OsString::from_vec(kept), origin);
    }
}

fn passing_host_variables<'s>(
    spec: &RunSpec,
    session: &'s Session,
) -> Vec<(&'s OsString, &'s OsString)> {
    session
        .env
        .iter()
        .filter(|(name, _)| {
            let known = |list: &[&str]| list.iter().any(|known| name == known);
            if known(&NEVER) || spec.no_env.contains(name) {
                return false;
            }
            if RUNTIME
                .iter()
                .any(|family| name.as_bytes().starts_with(family))
            {
                return false;
            }
            !spec.clean_env || known(&ALWAYS)
        })
        .map(|(name, value)| (name, value))
        .collect()
}

fn apply(requests: &[&EnvRequest], inside: &mut Building) {
    for request in requests {
        match request.name.as_bytes() {
            b"PREPEND_PATH"
            | b"APPEND_PATH"
            | b"PREPEND_LD_LIBRARY_PATH"
            | b"APPEND_LD_LIBRARY_PATH" => {}
            _ => inside.set(&request.name, &request.value, request.origin.clone()),
        }
    }
    for request in requests {
        let (target, first) = match request.name.as_bytes() {
            b"PREPEND_PATH" => ("PATH", true),
            b"APPEND_PATH" => ("PATH", false),
            b"PREPEND_LD_LIBRARY_PATH" => ("LD_LIBRARY_PATH", true),
            b"APPEND_LD_LIBRARY_PATH" => ("LD_LIBRARY_PATH", false),
            _ => continue,
        };
        let present = inside
            .get(OsStr::new(target))
            .map(|variable| variable.value.clone())
            .filter(|value| !value.is_empty());
        let value = match (present, first) {
            (None, _) => request.value.clone(),
            (Some(present), true) => joined(&request.value, &present),
            (Some(present), false) => joined(&present, &request.value),
        };
        inside.set(target, value, request.origin.clone());
    }
}

fn joined(left: &OsStr, right: &OsStr) -> OsString {
    let mut both = left.to_owned();
    both.push(":");
    both.push(right);
    both
}

/// What the image's shell does before it becomes the program: the same steps in the same order.
fn finishing_script(
    requests: &[&EnvRequest],
    passing: &[(&OsString, &OsString)],
    inside: &mut Building,
) -> OsString {
    let mut script =
        b"for longshore_env in /.singularity.d/env/*.sh; do . \"$longshore_env\"; done; unset longshore_env\n"
            .to_vec();
    for request in requests {
        let (name, value) = (request.name.as_bytes(), request.value.as_bytes());
        let (target, first) = match name {
            b"PREPEND_PATH" => ("PATH", true),
            b"APPEND_PATH" => ("PATH", false),
            b"PREPEND_LD_LIBRARY_PATH" => ("LD_LIBRARY_PATH", true),
            b"APPEND_LD_LIBRARY_PATH" => ("LD_LIBRARY_PATH", false),
            _ => {
                if assignments::is_shell_name(name) {
                    script.extend_from_slice(b"export ");
                    script.extend_from_slice(name);
                    script.push(b'=');
                    quote(value, &mut script);
                    script.push(b'\n');
                } else {
                    inside.set(&request.name, &request.value, request.origin.clone());
                }
                continue;
            }
        };
        let text = if first {
            format!("{target}${{{target}:+:${target}}}\n")
        } else {
            String::new()
        };
        script.extend_from_slice(format!("export {target}=").as_bytes());
        if first {
            quote(value, &mut script);
            script.extend_from_slice(&text.as_bytes()[target.len()..]);
        } else {
            script.extend_from_slice(format!("\"${{{target}:+${target}:}}\"").as_bytes());
            quote(value, &mut script);
            script.push(b'\n');
        }
    }
    for (name, value) in passing {
        if assignments::is_shell_name(name.as_bytes()) {
            script.extend_from_slice(b"[ \"${");
            script.extend_from_slice(name.as_bytes());
            script.extend_from_slice(b"+x}\" ] || export ");
            script.extend_from_slice(name.as_bytes());
            script.push(b'=');
            quote(value.as_bytes(), &mut script);
            script.push(b'\n');
        } else if inside.get(name).is_none() {
            inside.set(*name, *value, Origin::Host);
        }
    }
    script.extend_from_slice(b"exec \"$@\"\n");
    OsString::from_vec(script)
}

fn quote(value: &[u8], script: &mut Vec<u8>) {
    script.push(b'\'');
    for &byte in value {
        if byte == b'\'' {
            script.extend_from_slice(b"'\\''");
        } else {
            script.push(byte);
        }
    }
    script.push(b'\'');
}

/// Reads the assignments of an `--env-file`; every variable that it sets goes in.
///
/// The grammar is a shell's, but nothing is run: a file that needs more than assignments,
/// quotes and the expansion of variables is refused. `session` supplies what `$NAME` stands for.
///
/// # Errors
///
/// The line and the text that only a shell could evaluate.
pub fn parse_env_file(
    name: &Path,
    text: &[u8],
    session: &Session,
) -> Result<Vec<EnvRequest>, EnvFileError> {
    let mut variables = Variables::default();
    for (name, value) in &session.env {
        variables.set(name.as_bytes(), value.as_bytes().to_vec());
    }
    let before = variables.clone();
    let mut probe = Variables::default();
    assignments::evaluate(text, &mut variables).map_err(|needs| EnvFileError {
        file: name.to_owned(),
        line: needs.line,
        what: needs.what,
    })?;
    // A second pass from nothing tells which names the file mentions, also where it sets a
    // variable to the value that the caller has.
    let _ = assignments::evaluate(text, &mut probe);
    Ok(variables
        .all()
        .filter(|(name, value)| probe.get(name).is_some() || before.get(name) != Some(*value))
        .map(|(variable, value)| EnvRequest {
            name: OsStr::from_bytes(variable).to_owned(),
            value: OsStr::from_bytes(value).to_owned(),
            origin: Origin::File(name.to_string_lossy().into_owned()),
        })
        .collect())
}

/// An `--env-file` that only a shell could evaluate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, line {line}: `{what}` is more than an assignment, and an environment file is not run", file.display())]
pub struct EnvFileError {
    /// The file.
    pub file: std::path::PathBuf,
    /// Where.
    pub line: usize,
    /// What.
    pub what: String,
}

/// Reads `NAME=value[,NAME=value…]` as `--env` takes it.
///
/// A comma begins a new variable only where a name and `=` follow; so values may hold commas.
///
/// # Errors
///
/// [`EnvTextError`] for text without an assignment.
pub fn parse_env(text: &OsStr, origin: &Origin) -> Result<Vec<EnvRequest>, EnvTextError> {
    let mut list: Vec<EnvRequest> = Vec::new();
    for part in text.as_bytes().split(|&byte| byte == b',') {
        let equals = part.iter().position(|&byte| byte == b'=');
        match (equals, list.last_mut()) {
            (Some(at), _) if assignments::is_shell_name(&part[..at]) => list.push(EnvRequest {
                name: OsStr::from_bytes(&part[..at]).to_owned(),
                value: OsStr::from_bytes(&part[at + 1..]).to_owned(),
                origin: origin.clone(),
            }),
            (_, Some(before)) => {
                before.value.push(",");
                before.value.push(OsStr::from_bytes(part));
            }
            _ => return Err(EnvTextError(text.to_string_lossy().into_owned())),
        }
    }
    Ok(list)
}

/// `--env` without a name and `=`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`--env {0}` is no assignment; write NAME=value")]
pub struct EnvTextError(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn session(env: &[(&str, &str)]) -> Session {
        Session {
            uid: 1000,
            gid: 1000,
            groups: vec![1000],
            user: "alice".into(),
            home: "/home/alice".into(),
            cwd: "/".into(),
            env: env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }

    fn spec() -> RunSpec {
        RunSpec::new(Action::Exec(vec!["env".into()]))
    }

    fn rootfs(env: &[(&str, &str)]) -> Rootfs {
        let mut rootfs = Rootfs {
            name: "/images/x".into(),
            ..Rootfs::default()
        };
        rootfs.config.env = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        rootfs
    }

    fn request(name: &str, value: &str) -> EnvRequest {
        EnvRequest {
            name: name.into(),
            value: value.into(),
            origin: Origin::Option,
        }
    }

    #[track_caller]
    fn check(environment: &Environment, name: &str, expected: Option<(&str, Origin)>) {
        let found = environment
            .variables
            .iter()
            .find(|variable| variable.name == name);
        assert_eq!(
            found.map(|variable| (variable.value.to_str().unwrap(), variable.origin.clone())),
            expected,
            "{name}"
        );
    }

    #[test]
    fn the_image_beats_the_host_and_the_option_beats_the_image() {
        let mut spec = spec();
        spec.env = vec![request("B", "option")];
        let session = session(&[("A", "host"), ("B", "host"), ("C", "host")]);
        let image = rootfs(&[("A", "a b$c \"d\""), ("B", "image")]);
        let environment = environment(&spec, &session, &image, &Facts::default());
        check(&environment, "A", Some(("a b$c \"d\"", Origin::Image)));
        check(&environment, "B", Some(("option", Origin::Option)));
        check(&environment, "C", Some(("host", Origin::Host)));
    }

    #[test]
    fn an_empty_driver_folder_is_no_place_to_look_for_libraries() {
        let library_path = |script: &str, empty_driver_folder| {
            let facts = Facts {
                env_scripts: vec![("99-base.sh".into(), script.as_bytes().to_vec())],
                empty_driver_folder,
                ..Facts::default()
            };
            let built = environment(&spec(), &session(&[]), &rootfs(&[]), &facts);
            let found = built
                .variables
                .into_iter()
                .find(|variable| variable.name == "LD_LIBRARY_PATH");
            found.map(|variable| variable.value.into_string().expect("is text"))
        };
        let alone = "export LD_LIBRARY_PATH=/.singularity.d/libs\n";
        assert_eq!(library_path(alone, true), None);
        assert_eq!(
            library_path(alone, false).as_deref(),
            Some("/.singularity.d/libs")
        );
        let others = "export LD_LIBRARY_PATH=/a:/.singularity.d/libs:/b\n";
        assert_eq!(library_path(others, true).as_deref(), Some("/a:/b"));
    }

    #[test]
    fn variables_that_describe_the_host_stay_outside() {
        let session = session(&[
            ("PATH", "/opt/bin"),
            ("LD_LIBRARY_PATH", "/opt/lib"),
            ("HOME", "/elsewhere"),
            ("SINGULARITY_BIND", "/x"),
            ("APPTAINERENV_Y", "1"),
        ]);
        let environment = environment(&spec(), &session, &rootfs(&[]), &Facts::default());
        check(
            &environment,
            "PATH",
            Some((DEFAULT_PATH, Origin::Longshore)),
        );
        check(
            &environment,
            "USER_PATH",
            Some(("/opt/bin", Origin::Longshore)),
        );
        check(
            &environment,
            "HOME",
            Some(("/home/alice", Origin::Longshore)),
        );
        check(&environment, "LD_LIBRARY_PATH", None);
        check(
            &environment,
            "SINGULARITY_BIND",
            Some(("", Origin::Longshore)),
        );
        check(&environment, "APPTAINERENV_Y", None);
    }

    #[test]
    fn a_clean_environment_keeps_the_terminal_and_proxies() {
        let mut spec = spec();
        spec.clean_env = true;
        let session = session(&[("TERM", "xterm"), ("no_proxy", "x"), ("FOO", "1")]);
        let environment = environment(&spec, &session, &rootfs(&[]), &Facts::default());
        check(&environment, "TERM", Some(("xterm", Origin::Host)));
        check(&environment, "no_proxy", Some(("x", Origin::Host)));
        check(&environment, "FOO", None);
    }

    #[test]
    fn paths_are_prepended_and_appended_to_the_images() {
        let mut spec = spec();
        spec.env = vec![request("APPEND_PATH", "/z"), request("PREPEND_PATH", "/a")];
        let image = rootfs(&[("PATH", "/bin")]);
        let environment = environment(&spec, &session(&[]), &image, &Facts::default());
        check(&environment, "PATH", Some(("/a:/bin:/z", Origin::Option)));
        check(&environment, "PREPEND_PATH", None);
    }

    #[test]
    fn scripts_of_assignments_need_no_shell() {
        let facts = Facts {
            env_scripts: vec![
                (
                    "10-docker2singularity.sh".into(),
                    b"export PATH=\"${PATH2:-\"/x:/bin\"}\"\nexport A=\"${A:-\"q r\"}\"\n".to_vec(),
                ),
                (
                    "90-environment.sh".into(),
                    b"B=1\nexport A=\"$A+\"\n".to_vec(),
                ),
            ],
            ..Facts::default()
        };
        let environment = environment(&spec(), &session(&[("A", "host")]), &rootfs(&[]), &facts);
        assert_eq!(environment.shell, None);
        let script = Origin::ImageScript("90-environment.sh".into());
        check(&environment, "A", Some(("q r+", script)));
        check(&environment, "B", None);
        let script = Origin::ImageScript("10-docker2singularity.sh".into());
        check(&environment, "PATH", Some(("/x:/bin", script)));
    }

    #[test]
    fn a_script_that_runs_programs_is_left_to_the_images_shell() {
        let facts = Facts {
            env_scripts: vec![("90-environment.sh".into(), b"export A=$(date)\n".to_vec())],
            ..Facts::default()
        };
        let mut spec = spec();
        spec.env = vec![
            request("B", "it's"),
            request("PREPEND_PATH", "/a"),
            request("APPEND_PATH", "/z"),
        ];
        let environment = environment(
            &spec,
            &session(&[("C", "1"), ("%", "2")]),
            &rootfs(&[]),
            &facts,
        );
        let shell = environment.shell.clone().expect("a shell is needed");
        assert_eq!(
            shell.script.to_str().unwrap(),
            "for longshore_env in /.singularity.d/env/*.sh; do . \"$longshore_env\"; done; unset longshore_env\n\
             export B='it'\\''s'\n\
             export PATH='/a'${PATH:+:$PATH}\n\
             export PATH=\"${PATH:+$PATH:}\"'/z'\n\
             [ \"${C+x}\" ] || export C='1'\n\
             exec \"$@\"\n"
        );
        assert!(shell.reason.contains("line 1"), "{}", shell.reason);
        check(&environment, "%", Some(("2", Origin::Host)));
    }

    #[test]
    fn an_environment_file_is_read_like_a_shell_would() {
        let session = session(&[("HOME", "/h"), ("SAME", "1")]);
        let read = |text: &str| parse_env_file(Path::new("f"), text.as_bytes(), &session);
        let list = read("# comment\nA=1\nexport B=\"$HOME/$A\"\nSAME=1\n").expect("assignments");
        let list: Vec<(&str, &str)> = list
            .iter()
            .map(|request| {
                (
                    request.name.to_str().unwrap(),
                    request.value.to_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(list, [("SAME", "1"), ("A", "1"), ("B", "/h/1")]);
        assert_eq!(read("A=1\nB=`id`\n").expect_err("runs a program").line, 2);
    }

    #[test]
    fn a_comma_in_a_value_is_kept() {
        let list = parse_env(OsStr::new("A=1,2,B=x=y,C="), &Origin::Option).expect("assignments");
        assert_eq!(
            list,
            [request("A", "1,2"), request("B", "x=y"), request("C", "")]
        );
        assert!(parse_env(OsStr::new("A"), &Origin::Option).is_err());
    }
}
