//! Thin, checked wrappers of Linux system calls; the only crate with `unsafe` code.
//!
//! Each module is one subject of the kernel. A wrapper takes safe types, gives `io::Result`, and
//! states in a `SAFETY` comment what it relies on. No policy lives here.
#![allow(unsafe_code)]

pub mod children;
pub mod process;
