//! `cargo xtask record-host NAME`: keeps a node as a fixture, with the `Host` that it must give.
//!
//! On a node without a Rust toolchain, `longshore doctor --record DIR` writes the same; `--from DIR`
//! brings that folder in.

use std::path::{Path, PathBuf};

use longshore_host::{Host, Node};

/// Record this node, or one that was recorded elsewhere, under `fixtures/hosts/NAME`
#[derive(clap::Args)]
pub(crate) struct RecordHostArgs {
    /// Name of the fixture: what is special about the node, as `rhel8-no-userns`
    name: String,
    /// Folder that `longshore doctor --record` wrote on the node, instead of this machine
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
}

/// Writes the fixture and says where it lies.
pub(crate) fn run(root: &Path, args: &RecordHostArgs) -> Result<(), String> {
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if args.name.is_empty() || !args.name.chars().all(plain) {
        return Err(format!(
            "`{}` is no name of a fixture: use lower-case letters, digits and hyphens",
            args.name
        ));
    }
    let folder = root.join("fixtures/hosts").join(&args.name);
    if folder.exists() {
        return Err(format!(
            "{} exists already; remove it first",
            crate::shown(root, &folder)
        ));
    }
    let node = match &args.from {
        Some(from) => Node::recorded(from).map_err(|error| words(&error))?,
        None => Node::live(),
    };
    let host = Host::record(&node, &folder).map_err(|error| words(&error))?;
    let verdict = match host.can_run_containers() {
        Ok(()) => "containers can run there".to_owned(),
        Err(refusal) => format!("containers cannot run there: {}", refusal.detail),
    };
    println!("recorded {} ({verdict})", crate::shown(root, &folder));
    println!("look it over for names before you commit it, and say in its README what it is");
    Ok(())
}

/// An error with the chain of its causes.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
