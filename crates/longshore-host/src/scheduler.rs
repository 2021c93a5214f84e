//! Which job schedulers can be asked from here.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::node::Node;

/// A scheduler whose client is on PATH.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    /// `slurm`, `pbs`, `lsf`, `flux`, `grid-engine`, `htcondor`, `kubernetes`.
    pub name: String,
    /// The client that was found.
    pub client: PathBuf,
    /// Its version as it says it; `None` where it did not answer in time.
    pub version: Option<String>,
}

/// Name, client, and what makes it say its version without asking a server.
const CLIENTS: [(&str, &str, &[&str]); 8] = [
    ("slurm", "sinfo", &["--version"]),
    ("pbs", "qstat", &["--version"]),
    ("lsf", "bsub", &["-V"]),
    ("flux", "flux", &["--version"]),
    // Nothing else is called qconf; grid engine's own qstat has no --version.
    ("grid-engine", "qconf", &["-help"]),
    ("htcondor", "condor_version", &[]),
    ("cobalt", "cqsub", &["--version"]),
    ("kubernetes", "kubectl", &["version", "--client"]),
];

pub(crate) fn programs() -> impl Iterator<Item = &'static str> {
    CLIENTS.into_iter().map(|(_, client, _)| client)
}

pub(crate) fn derive(node: &Node) -> Vec<Scheduler> {
    let has = |client: &str| node.observed.programs.contains_key(client);
    CLIENTS
        .into_iter()
        // Grid engine brings a qstat too.
        .filter(|(name, _, _)| *name != "pbs" || !has("qconf"))
        .filter_map(|(name, client, arguments)| {
            let found = node.observed.programs.get(client)?;
            let said = node.tool(client, arguments);
            let version =
                said.and_then(|said| said.lines().next().map(|line| line.trim().to_owned()));
            // A qstat of Slurm's wrappers says Slurm; it is no second scheduler.
            let wrapper = name == "pbs" && has("sinfo") && version.is_none();
            (!wrapper).then(|| Scheduler {
                name: name.to_owned(),
                client: found.path.clone(),
                version,
            })
        })
        .collect()
}
