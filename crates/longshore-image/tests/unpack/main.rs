//! The extractor against archives of all kinds: sound ones, broken ones and those made to escape.
//!
//! Archives are made byte by byte (`tar_writer.rs`), because no archiver makes the ones that matter
//! here. Each test has a canary beside the tree that must stay as it is.
#![allow(missing_docs)]

mod corpus;
mod formats;
mod limits;
mod model;
mod mutation;
mod stage;
mod tar_writer;
mod user;
