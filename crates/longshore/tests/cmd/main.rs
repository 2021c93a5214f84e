//! End-to-end tests: the real binary, as an ordinary user, seen from outside.

mod cache;
mod image_server;
mod pull;
mod store;
mod support;
