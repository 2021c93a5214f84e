//! End-to-end tests: the real binary, as an ordinary user, seen from outside.

mod bench;
mod doctor;
mod environment;
mod exec;
mod identity;
mod mounts;
mod process;
mod study;
mod support;
