//! Containers that outlive the command that started them: their records.
//!
//! A record is a small file of the user's own on this node, never in the home directory, which
//! several nodes may share. It names the first process of the instance with its start time and
//! the run of the machine, so that a record that a crash or a reboot has left behind is seen to be
//! stale, also when the number of the process was given to another one.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use longshore_host::{Session, process};
use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plan::{PlannedNamespaces, RunPlan};

/// What is known about an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceRecord {
    /// Its name.
    pub name: String,
    /// Its first process, as seen from outside.
    pub pid: i32,
    /// When that process started, in ticks since the machine did.
    pub start_time_ticks: u64,
    /// The run of the machine.
    pub boot_id: String,
    /// The image as the user named it.
    pub image: String,
    /// Where its output goes.
    pub log_out: PathBuf,
    /// Where its errors go.
    pub log_err: PathBuf,
    /// It has a user namespace.
    pub user: bool,
    /// It has IPC of its own.
    pub ipc: bool,
    /// It has a network of its own.
    pub net: bool,
    /// It has a host name of its own.
    pub uts: bool,
    /// Its user appears as root.
    pub fakeroot: bool,
}

impl InstanceRecord {
    /// The record of an instance that has just started.
    ///
    /// # Errors
    ///
    /// Where its first process is gone already.
    pub fn new(
        name: &str,
        pid: i32,
        image: String,
        plan: &RunPlan,
        fakeroot: bool,
        (log_out, log_err): (PathBuf, PathBuf),
    ) -> io::Result<InstanceRecord> {
        let PlannedNamespaces {
            user,
            ipc,
            net,
            uts,
            ..
        } = plan.namespaces;
        Ok(InstanceRecord {
            name: name.to_owned(),
            pid,
            start_time_ticks: process::start_time_ticks(pid)?,
            boot_id: process::boot_id()?,
            image,
            log_out,
            log_err,
            user,
            ipc,
            net,
            uts,
            fakeroot,
        })
    }

    /// Whether the first process is still the one that was recorded.
    pub fn is_alive(&self) -> bool {
        process::boot_id().is_ok_and(|boot| boot == self.boot_id)
            && process::start_time_ticks(self.pid).is_ok_and(|start| start == self.start_time_ticks)
    }
}

/// The records of one user on this node.
#[derive(Debug)]
pub struct Instances {
    folder: PathBuf,
}

/// Held while a name is taken, so that two starts cannot both get it.
#[derive(Debug)]
pub struct NameLock {
    _folder: File,
}

/// Why the records cannot be used.
#[derive(Debug, Error)]
pub enum InstancesError {
    /// The folder cannot be made or used.
    #[error("cannot use the folder of instances {}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// Somebody else could change what is in the folder.
    #[error("the folder of instances {} belongs to somebody else, or others may write to it", path.display())]
    NotOwn {
        /// Which.
        path: PathBuf,
    },
    /// A name that could leave the folder or confuse readers.
    #[error("`{0}` is no name for an instance; letters, digits, `_`, `-` and `.` make one")]
    Name(String),
    /// There is no such instance.
    #[error("no instance found with name {0}")]
    NotFound(String),
    /// The name is taken.
    #[error("instance {0} already exists")]
    Exists(String),
}

impl Instances {
    /// Opens the user's records, made if they are not there.
    ///
    /// # Errors
    ///
    /// [`InstancesError::NotOwn`] where somebody else was there first.
    pub fn open(session: &Session) -> Result<Instances, InstancesError> {
        let base = match session.var("XDG_RUNTIME_DIR").map(Path::new) {
            Some(folder) if is_own(folder, session.uid) => folder.join("longshore"),
            _ => PathBuf::from(format!("/tmp/longshore-{}", session.uid)),
        };
        let folder = base.join("instances");
        // One after the other: nothing is made through a link that somebody else has put there.
        for path in [&base, &folder] {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                    let path = path.clone();
                    return Err(InstancesError::Folder { path, source });
                }
                _ if !is_own(path, session.uid) => {
                    return Err(InstancesError::NotOwn { path: path.clone() });
                }
                _ => {}
            }
        }
        Ok(Instances { folder })
    }

    /// Where the output and the errors of an instance are kept.
    pub fn logs(&self, name: &str) -> (PathBuf, PathBuf) {
        (
            self.folder.join(format!("{name}.out")),
            self.folder.join(format!("{name}.err")),
        )
    }

    /// Takes a name that no running instance has, until the lock is dropped.
    ///
    /// # Errors
    ///
    /// [`InstancesError::Exists`] and [`InstancesError::Name`].
    pub fn take_name(&self, name: &str) -> Result<NameLock, InstancesError> {
        check_name(name)?;
        let wrong = |error: rustix::io::Errno| InstancesError::Folder {
            path: self.folder.clone(),
            source: error.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder =
            rustix::fs::open(&self.folder, flags, rustix::fs::Mode::empty()).map_err(wrong)?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive).map_err(wrong)?;
        match self.find(name) {
            Ok(_) => Err(InstancesError::Exists(name.to_owned())),
            Err(InstancesError::NotFound(_)) => Ok(NameLock {
                _folder: folder.into(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Writes a record, whole or not at all.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be written.
    pub fn save(&self, record: &InstanceRecord) -> Result<(), InstancesError> {
        let path = self.path(&record.name);
        let draft = self.folder.join(format!(".{}.{}", record.name, record.pid));
        let text = serde_json::to_vec(record).expect("a record is plain data");
        File::create(&draft)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| std::fs::rename(&draft, &path))
            .map_err(|source| InstancesError::Folder { path, source })
    }

    /// The running instance of this name; a stale record is removed.
    ///
    /// # Errors
    ///
    /// [`InstancesError::NotFound`].
    pub fn find(&self, name: &str) -> Result<InstanceRecord, InstancesError> {
        check_name(name)?;
        let missing = || InstancesError::NotFound(name.to_owned());
        let text = match std::fs::read(self.path(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(source) => {
                return Err(InstancesError::Folder {
                    path: self.path(name),
                    source,
                });
            }
        };
        match serde_json::from_slice::<InstanceRecord>(&text) {
            Ok(record) if record.is_alive() => Ok(record),
            // What is left of an instance that ended, or of another version's.
            _ => {
                self.remove(name);
                Err(missing())
            }
        }
    }

    /// All running instances by name.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be read.
    pub fn list(&self) -> Result<Vec<InstanceRecord>, InstancesError> {
        let wrong = |source| InstancesError::Folder {
            path: self.folder.clone(),
            source,
        };
        let mut list = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(wrong)? {
            let name = entry.map_err(wrong)?.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            if let Ok(record) = self.find(name) {
                list.push(record);
            }
        }
        list.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(list)
    }

    /// Forgets an instance; its logs are kept.
    pub fn remove(&self, name: &str) {
        // One that is gone already is what was wanted.
        let _ = std::fs::remove_file(self.path(name));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

fn check_name(name: &str) -> Result<(), InstancesError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(InstancesError::Name(name.to_owned()));
    }
    Ok(())
}

/// A real directory of this user's that nobody else can write to.
fn is_own(path: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == uid && metadata.mode() & 0o022 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_folder_are_refused() {
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            ".hidden",
            "a b",
            "ä",
            &"x".repeat(200),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["a", "web-1", "x_y.z"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }
}
