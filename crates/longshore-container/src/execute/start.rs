//! The last steps in the program's own process: directory, ids, capabilities, and execve.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use longshore_sys::process;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::plan::{Capabilities, PlannedIdentity, Program, RunPlan};

use super::{StartError, failed};

/// Becomes the program of the plan.
pub(super) fn start(plan: &RunPlan) -> Result<Infallible, StartError> {
    let directory = go_to_directory(plan)?;
    if plan.default_umask {
        rustix::process::umask(Mode::from_raw_mode(0o022));
    }
    lower_privileges(&plan.identity)?;
    let environment = environment(plan, &directory)?;
    become_program(&plan.program, &environment)
}

fn go_to_directory(plan: &RunPlan) -> Result<PathBuf, StartError> {
    let mut refusal = None;
    for place in &plan.directories {
        match rustix::process::chdir(&place.path) {
            Ok(()) => return Ok(place.path.clone()),
            Err(error) if place.asked => {
                return Err(StartError::Directory {
                    path: place.path.clone(),
                    source: error.into(),
                });
            }
            Err(error) => refusal = Some(error),
        }
    }
    // Assembling has left this process at `/`, which is as good as the last resort.
    let _ = refusal;
    Ok(PathBuf::from("/"))
}

fn lower_privileges(identity: &PlannedIdentity) -> Result<(), StartError> {
    if !identity.switch_gids.is_empty() {
        let gids: Vec<Gid> = identity
            .switch_gids
            .iter()
            .map(|&gid| Gid::from_raw(gid))
            .collect();
        rustix::thread::set_thread_groups(&gids)
            .map_err(failed("setgroups", "change the groups"))?;
        rustix::thread::set_thread_res_gid(gids[0], gids[0], gids[0])
            .map_err(failed("setresgid", "change the group"))?;
    }
    if let Some(uid) = identity.switch_uid {
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid)
            .map_err(failed("setresuid", "change the user"))?;
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    let sets = match &identity.capabilities {
        Capabilities::None => Some(none),
        Capabilities::OfNamespace => None,
        Capabilities::OfCaller {
            none: false, drop, ..
        } if drop.is_empty() => None,
        Capabilities::OfCaller {
            none: from_nothing,
            add,
            drop,
        } => {
            let has = rustix::thread::capabilities(None)
                .map_err(failed("capget", "read the capabilities"))?
                .permitted;
            let mut keeps = if *from_nothing { has & named(add) } else { has };
            keeps -= named(drop);
            Some(CapabilitySets {
                effective: keeps,
                permitted: keeps,
                inheritable: CapabilitySet::empty(),
            })
        }
    };
    if let Some(sets) = sets {
        rustix::thread::set_capabilities(None, sets)
            .map_err(failed("capset", "give capabilities up"))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(failed("prctl", "rule out new privileges"))
}

/// The capability of this name, with or without `CAP_`.
fn capability(name: &str) -> Option<CapabilitySet> {
    let name = name.to_ascii_uppercase();
    match name.as_str() {
        "ALL" => Some(CapabilitySet::all()),
        name => CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap_or(name)),
    }
}

/// Whether the kernel knows a capability of this name, with or without `CAP_`.
pub fn is_capability(name: &str) -> bool {
    capability(name).is_some()
}

fn named(names: &[String]) -> CapabilitySet {
    names
        .iter()
        .filter_map(|name| capability(name))
        .fold(CapabilitySet::empty(), |set, one| set | one)
}

fn environment(plan: &RunPlan, directory: &Path) -> Result<Vec<CString>, StartError> {
    let mut list = Vec::with_capacity(plan.environment.len() + 1);
    for variable in &plan.environment {
        list.push(assignment(&variable.name, &variable.value)?);
    }
    list.push(assignment(OsStr::new("PWD"), directory.as_os_str())?);
    Ok(list)
}

fn assignment(name: &OsStr, value: &OsStr) -> Result<CString, StartError> {
    let mut text = Vec::with_capacity(name.len() + value.len() + 2);
    text.extend_from_slice(name.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    CString::new(text).map_err(|_| StartError::ZeroByte(format!("the variable {}", name.display())))
}

fn word(word: &OsStr) -> Result<CString, StartError> {
    CString::new(word.as_bytes()).map_err(|_| StartError::ZeroByte("an argument".into()))
}

/// Looks for the program as execvp(3) does, in the container's `PATH`.
fn become_program(program: &Program, environment: &[CString]) -> Result<Infallible, StartError> {
    let name = &program.arguments[0];
    let arguments = program
        .arguments
        .iter()
        .map(|argument| word(argument))
        .collect::<Result<Vec<_>, _>>()?;
    let candidates: Vec<OsString> = if name.as_bytes().contains(&b'/') {
        vec![name.clone()]
    } else {
        program
            .search
            .as_bytes()
            .split(|&byte| byte == b':')
            .map(|folder| {
                let folder = if folder.is_empty() {
                    Path::new(".")
                } else {
                    Path::new(OsStr::from_bytes(folder))
                };
                folder.join(name).into_os_string()
            })
            .collect()
    };
    let mut found = None;
    // An empty name would be the folder itself.
    for candidate in candidates.iter().filter(|_| !name.is_empty()) {
        let path = word(candidate)?;
        let Err(error) = process::replace(&path, &arguments, environment);
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
                if !Path::new(candidate).exists() => {}
            Some(Errno::NOEXEC) if is_text(candidate) => {
                let shell = c"/bin/sh";
                let mut through = vec![shell.to_owned(), path];
                through.extend(arguments[1..].iter().cloned());
                let Err(error) = process::replace(shell, &through, environment);
                return Err(not_executable(candidate, &error));
            }
            // A shell would go on and look for one that may be executed.
            Some(Errno::ACCESS) => found = found.or(Some((candidate, error))),
            _ => return Err(not_executable(candidate, &error)),
        }
    }
    Err(match found {
        Some((candidate, error)) => not_executable(candidate, &error),
        None => StartError::ProgramNotFound {
            program: name.to_string_lossy().into_owned(),
            place: if name.as_bytes().contains(&b'/') {
                "the image".to_owned()
            } else {
                format!("$PATH of the image ({})", program.search.to_string_lossy())
            },
        },
    })
}

fn beginning(path: &OsStr) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // What cannot be read is treated like an empty file: there is nothing to add.
        let _ = file.take(256).read_to_end(&mut bytes);
    }
    bytes
}

fn is_text(path: &OsStr) -> bool {
    let bytes = beginning(path);
    !bytes.starts_with(b"\x7fELF") && !bytes.contains(&0)
}

fn not_executable(path: &OsStr, error: &io::Error) -> StartError {
    let bytes = beginning(path);
    let reason = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => match bytes.strip_prefix(b"#!") {
            Some(line) => {
                let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
                let interpreter = OsString::from_vec(line.trim_ascii().to_vec());
                format!(
                    "its interpreter `{}` is not in the image",
                    interpreter.to_string_lossy()
                )
            }
            None => {
                "the loader that it names is not in the image, so it was built for another system"
                    .to_owned()
            }
        },
        Some(Errno::ACCESS) if Path::new(path).is_dir() => "it is a directory".to_owned(),
        Some(Errno::ACCESS) => "permission denied; it may lack the execute bit".to_owned(),
        Some(Errno::NOEXEC) if bytes.starts_with(b"\x7fELF") => {
            format!(
                "it was built for another kind of processor than this {} node",
                std::env::consts::ARCH
            )
        }
        Some(Errno::NOEXEC) => "it is neither a program nor a script".to_owned(),
        Some(Errno::TOOBIG) => {
            "its arguments and environment are larger than the kernel takes".to_owned()
        }
        _ => crate::facts::error_text(error),
    };
    StartError::NotExecutable {
        program: path.to_string_lossy().into_owned(),
        reason,
    }
}
