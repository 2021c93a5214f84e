//! Who is calling, from where, with which environment: the cheap part of the probe.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::account::account_of;
use crate::launcher::{self, BatchJob, Launcher};

/// The calling user's identity and surroundings, as the kernel and the environment have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary group ids, the effective one possibly among them.
    pub groups: Vec<u32>,
    /// Login name; the number where the account data base has none.
    pub user: OsString,
    /// Home directory: `$HOME` if it is absolute, else that of the account, else `/`.
    pub home: PathBuf,
    /// Current directory, absolute.
    pub cwd: PathBuf,
    /// The environment in the order of the process, names unique.
    pub env: Vec<(OsString, OsString)>,
}

/// The session could not be probed.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The current directory was removed or may not be reached.
    #[error("cannot tell the current directory")]
    Cwd(#[source] io::Error),
    /// The list of supplementary groups could not be read.
    #[error("cannot read the supplementary groups")]
    Groups(#[source] io::Error),
}

impl Session {
    /// Probes the calling process.
    ///
    /// # Errors
    ///
    /// [`SessionError::Cwd`] where the current directory is gone: a container cannot be entered
    /// from nowhere.
    pub fn probe() -> Result<Session, SessionError> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let groups = rustix::process::getgroups()
            .map_err(|error| SessionError::Groups(error.into()))?
            .into_iter()
            .map(|group| group.as_raw())
            .collect();
        let env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        // A local account is found with one read; sites with LDAP export these variables.
        let account = std::fs::read("/etc/passwd")
            .ok()
            .and_then(|passwd| account_of(uid, &passwd));
        let named = |name: &str| {
            env.iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_os_str())
        };
        let user = account
            .as_ref()
            .map(|account| account.name.clone())
            .or_else(|| {
                named("USER")
                    .or_else(|| named("LOGNAME"))
                    .map(OsStr::to_owned)
            })
            .unwrap_or_else(|| uid.to_string().into());
        let home = named("HOME")
            .map(Path::new)
            .filter(|home| home.is_absolute())
            .map(Path::to_owned)
            .or_else(|| account.map(|account| account.home))
            .unwrap_or_else(|| PathBuf::from("/"));
        let cwd = std::env::current_dir().map_err(SessionError::Cwd)?;
        Ok(Session {
            uid,
            gid,
            groups,
            user,
            home,
            cwd,
            env,
        })
    }

    /// The launchers that started this process as a rank, the innermost first; none outside of a
    /// parallel job.
    pub fn launchers(&self) -> Vec<Launcher> {
        launcher::launchers(&self.launcher_variables())
    }

    /// The allocations of schedulers that this process runs in.
    pub fn batch_jobs(&self) -> Vec<BatchJob> {
        launcher::batch_jobs(&self.launcher_variables())
    }

    fn launcher_variables(&self) -> Vec<(&str, &str)> {
        self.env
            .iter()
            .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
            .filter(|(name, _)| launcher::is_launcher_variable(name))
            .collect()
    }

    /// The value of an environment variable of the caller.
    pub fn var(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        let name = name.as_ref();
        self.env
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::LauncherKind;

    #[test]
    fn a_session_knows_its_rank() {
        let env = [
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALRANKID", "1"),
            ("X", "y"),
        ];
        let session = Session {
            uid: 1,
            gid: 1,
            groups: Vec::new(),
            user: "a".into(),
            home: "/".into(),
            cwd: "/".into(),
            env: env.map(|(name, value)| (name.into(), value.into())).into(),
        };
        let launchers = session.launchers();
        assert_eq!(launchers.len(), 1);
        assert_eq!(
            (launchers[0].kind, launchers[0].rank),
            (LauncherKind::Hydra, 1)
        );
        assert!(session.batch_jobs().is_empty());
    }
}
