//! Probes what this machine is and what it can do.
//!
//! Nothing else in Longshore reads `/proc`, `/sys` or an environment variable of its own accord.
//! There are three depths: [`Session`] is what every container start needs and costs a handful of
//! system calls; [`explain_userns_refusal`] and [`explain_mount_refusal`] are asked once a start was
//! refused; [`Host`] is the whole picture that `longshore doctor` tells.
//!
//! A probe has two halves. [`Node`] holds what was found: files below a root, the environment, and
//! what only system calls can tell ([`Observed`]). Everything after that is derived, so that a node
//! recorded in a folder gives the same `Host` on any machine. A file that is missing, unreadable or
//! garbage makes an answer unknown; it never ends the probe.

mod ability;
mod account;
mod alone;
mod cgroup;
mod conditions;
mod cpu;
mod distribution;
mod errno;
mod fabric;
mod gpu;
mod host;
mod launcher;
mod loader;
mod memory;
mod mounts;
mod mpi;
mod nesting;
mod node;
mod places;
pub mod process;
mod record;
mod refusal;
mod scheduler;
mod session;

pub use ability::{Abilities, Ability};
pub use alone::wait_until_alone;
pub use cgroup::CgroupVersion;
pub use conditions::{Conditions, Disturbance, find_program, load};
pub use cpu::Cpus;
pub use distribution::Distribution;
pub use errno::name_errors;
pub use fabric::{Fabric, FabricKind, NetDevice};
pub use gpu::{Gpu, GpuVendor, Gpus};
pub use host::Host;
pub use launcher::{BatchJob, Launcher, LauncherKind, batch_jobs, launchers};
pub use memory::{Memory, memory_limit};
pub use mpi::{MpiFamily, MpiInstall};
pub use nesting::Nesting;
pub use node::{Node, Observed, ProbeError};
pub use places::{Place, PlaceKind};
pub use record::RecordError;
pub use refusal::{
    MountWish, Reason, Refusal, Remedy, Who, apparmor_profile, explain_id_map_refusal,
    explain_mount_refusal, explain_userns_refusal,
};
pub use scheduler::Scheduler;
pub use session::{Session, SessionError};
