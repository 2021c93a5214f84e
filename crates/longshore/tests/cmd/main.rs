//! End-to-end tests: the real binary, as an ordinary user, seen from outside.

mod environment;
mod exec;
mod identity;
mod instance;
mod mounts;
mod process;
mod support;
mod terminal;
