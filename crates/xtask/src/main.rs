//! Automation of the project: `cargo xtask ci` is what CI runs.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod ci;
mod record_host;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Automation of the project
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything that a change has to pass: format, clippy, tidy, documentation, tests
    Ci,
    /// Check the invariants of ARCHITECTURE.md and the links of the documentation
    Tidy,
    RecordHost(record_host::RecordHostArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Ci => ci::run(workspace_root()),
        Task::Tidy => tidy::run(workspace_root()),
        Task::RecordHost(args) => record_host::run(workspace_root(), &args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace's manifest.
fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies in crates/ of the workspace")
}

/// A path as it is shown: relative to the workspace.
fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string()
}

/// All files below `folder` with the given extension, in a stable order; build outputs left out.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && name != "target" && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
