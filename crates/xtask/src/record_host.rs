//! `cargo xtask record-host NAME`: keeps a node as a fixture, with the `Host` that it must give.
//!
//! On a node without a Rust toolchain, `longshore doctor --record DIR` writes the same; `--from DIR`
//! brings that folder in.

use std::error::Error;
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
///
/// # Errors
///
/// The name is no plain name, the fixture exists, or a folder cannot be read or written.
pub(crate) fn run(args: &RecordHostArgs) -> Result<String, Box<dyn Error>> {
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if args.name.is_empty() || !args.name.chars().all(plain) {
        return Err(format!(
            "`{}` is no name of a fixture: use lower-case letters, digits and hyphens",
            args.name
        )
        .into());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/hosts")
        .join(&args.name);
    if folder.exists() {
        return Err(format!("{} exists already; remove it first", folder.display()).into());
    }
    let node = match &args.from {
        Some(from) => Node::recorded(from)?,
        None => Node::live(),
    };
    let host = Host::record(&node, &folder)?;
    let verdict = match host.can_run_containers() {
        Ok(()) => "containers can run there".to_owned(),
        Err(refusal) => format!("containers cannot run there: {}", refusal.detail),
    };
    Ok(format!(
        "recorded {} ({verdict})\nlook it over for names before you commit it, and say in its README what it is",
        folder.display()
    ))
}
