//! Thin, checked wrappers of Linux system calls; the only crate with `unsafe` code.
//!
//! Each module is one subject of the kernel. A wrapper takes safe types, gives `io::Result`, and
//! states in a `SAFETY` comment what it relies on. No policy lives here. What `rustix` offers as
//! safe code is called there directly and has no twin here.
#![allow(unsafe_code)]

pub mod children;
pub mod mount;
pub mod namespace;
pub mod network;
pub mod probe;
pub mod process;
pub mod seccomp;
pub mod signal;
