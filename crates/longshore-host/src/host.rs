//! The whole picture of a node.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ability::{self, Abilities, Ability};
use crate::cgroup::{self, CgroupVersion};
use crate::cpu::{self, Cpus};
use crate::distribution::{self, Distribution};
use crate::fabric::{self, Fabric, NetDevice};
use crate::gpu::{self, Gpus};
use crate::launcher::{self, BatchJob, Launcher};
use crate::memory::{self, Memory};
use crate::mounts;
use crate::mpi::{self, MpiInstall};
use crate::nesting::{self, Nesting};
use crate::node::{Node, ProbeError};
use crate::places::{self, Place};
use crate::refusal::Refusal;
use crate::scheduler::{self, Scheduler};

/// What a node is and what it can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release; empty if unknown.
    pub kernel: String,
    /// Machine name as uname(2) gives it.
    pub machine: String,
    /// The distribution.
    pub distribution: Option<Distribution>,
    /// Version of the C library; `None` on a host without glibc.
    pub glibc: Option<String>,
    /// Whether the asker is root.
    pub root: bool,
    /// Processors.
    pub cpus: Cpus,
    /// Memory.
    pub memory: Memory,
    /// Control groups.
    pub cgroup: CgroupVersion,
    /// What encloses this process.
    pub nesting: Nesting,
    /// What the kernel allows.
    pub abilities: Abilities,
    /// Cache, temp and home.
    pub places: Vec<Place>,
    /// Who started this process as a rank, the innermost first.
    pub launchers: Vec<Launcher>,
    /// The allocations that this process runs in.
    pub jobs: Vec<BatchJob>,
    /// Schedulers that can be asked.
    pub schedulers: Vec<Scheduler>,
    /// MPI installations.
    pub mpis: Vec<MpiInstall>,
    /// High-speed networks.
    pub fabrics: Vec<Fabric>,
    /// Network devices.
    pub net_devices: Vec<NetDevice>,
    /// Accelerators.
    pub gpus: Gpus,
}

impl Host {
    /// Probes this machine. Takes tens of milliseconds: no container start does this.
    pub fn probe() -> Host {
        Host::of(&Node::live())
    }

    /// Reads the `Host` of a node that was recorded in `folder`.
    ///
    /// # Errors
    ///
    /// [`ProbeError`] where the folder holds no recording.
    pub fn from_recorded(folder: &Path) -> Result<Host, ProbeError> {
        Ok(Host::of(&Node::recorded(folder)?))
    }

    /// Derives all that can be known of a node.
    pub fn of(node: &Node) -> Host {
        let launcher_vars = node.vars(launcher::is_launcher_variable);
        let table = mounts::parse(&node.text("/proc/self/mountinfo").unwrap_or_default());
        Host {
            kernel: node.text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            machine: node.observed.machine.clone(),
            distribution: distribution::derive(node),
            glibc: node.observed.glibc.clone(),
            root: node.observed.uid == 0,
            cpus: cpu::derive(node),
            memory: memory::derive(node),
            cgroup: cgroup::version(&table),
            nesting: nesting::derive(node),
            abilities: ability::derive(node),
            places: places::derive(node),
            launchers: launcher::launchers(&launcher_vars),
            jobs: launcher::batch_jobs(&launcher_vars),
            schedulers: scheduler::derive(node),
            mpis: mpi::derive(node),
            fabrics: fabric::derive(node),
            net_devices: fabric::net_devices(node),
            gpus: gpu::derive(node),
        }
    }

    /// Whether containers can run here: `Err` with what stands in the way.
    ///
    /// A user namespace with bind mounts and a tmpfs in it suffices; overlay, FUSE and the rest
    /// only widen what can be done, or make it faster. What was not tried does not stand in the way.
    pub fn can_run_containers(&self) -> Result<(), &Refusal> {
        let needed = [
            &self.abilities.user_namespace,
            &self.abilities.bind_mount,
            &self.abilities.tmpfs,
        ];
        match needed.into_iter().find_map(Ability::refusal) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Whether images can be fetched and unpacked here: all that stands in the way.
    ///
    /// A btrfs or a network file system counts no inodes; that is in nobody's way.
    pub fn image_troubles(&self) -> Vec<Refusal> {
        self.places.iter().filter_map(Place::trouble).collect()
    }
}
