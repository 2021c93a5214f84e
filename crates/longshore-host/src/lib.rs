//! Probes what this machine is and what it can do.
//!
//! Nothing else in Longshore reads `/proc`, `/sys` or an environment variable of its own accord.
//! There are two depths: [`Session`] is what every container start needs and costs a handful of
//! system calls; `Host` is the whole picture that `longshore doctor` tells.

pub mod process;
mod session;

pub use session::{Session, SessionError};
