//! Workloads that turn a target into samples.
