//! Plans and starts containers for an ordinary user.
//!
//! [`RunSpec`] is what was asked for, [`inspect`] looks once at what the plan depends on,
//! [`plan()`] decides everything without touching the system, and [`execute()`] makes the system
//! calls. A plain start makes no process, no thread and runs no shell: the calling process moves
//! into new namespaces, puts the mounts together by file descriptors and becomes the program.

mod account;
mod assignments;
mod environment;
mod execute;
mod facts;
mod instances;
mod lossy;
mod mounts;
mod plan;
mod rootfs;
mod spec;

pub use environment::{
    DEFAULT_PATH, EnvFileError, EnvTextError, Variable, parse_env, parse_env_file,
};
pub use execute::{
    InstanceOutput, Outcome, StartError, Told, execute, is_capability, join_instance,
    signal_instance, start_instance, wait_for_instance,
};
pub use facts::{Facts, IdRanges, InspectError, Kind, Place, inspect};
pub use instances::{InstanceRecord, Instances, InstancesError, NameLock};
pub use mounts::{Limits, Necessity, Source};
pub use plan::{
    BindPoint, Capabilities, Layer, Mapping, Mount, PlanError, PlannedIdentity, PlannedNamespaces,
    Program, Root, RunPlan, StartDirectory, Upper, plan,
};
pub use rootfs::{ImageConfig, Rootfs};
pub use spec::{
    Action, EnvRequest, Home, Identity, Isolate, MountRequest, Omit, Origin, OverlayDir, Pids,
    Privileges, RunSpec, SpecError, Writable, absolute, checked_target,
};
