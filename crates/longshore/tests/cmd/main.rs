//! End-to-end tests: the real binary, as an ordinary user, seen from outside.

mod bench;
mod cache;
mod doctor;
mod environment;
mod exec;
mod identity;
mod image_server;
mod instance;
mod mounts;
mod packages;
mod process;
mod pull;
mod refusals;
mod store;
mod study;
mod support;
mod terminal;
