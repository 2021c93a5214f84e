//! What a change has to pass, in the order in which a failure is cheapest to find.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::tidy;

/// Runs every step and stops at the first that fails.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    step("format", || cargo(root, &["fmt", "--all", "--check"], &[]))?;
    step("tidy", || tidy::run(root))?;
    step("clippy", || {
        let arguments = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ];
        cargo(root, &arguments, &[])
    })?;
    step("documentation", || {
        // In the binary, doc comments are help texts, whose brackets are no links.
        let arguments = [
            "doc",
            "--workspace",
            "--exclude=longshore",
            "--no-deps",
            "--locked",
            "--document-private-items",
        ];
        cargo(root, &arguments, &[("RUSTDOCFLAGS", "-D warnings")])
    })?;
    step("tests", || {
        cargo(
            root,
            &["test", "--workspace", "--locked", "--no-fail-fast"],
            &[],
        )
    })
}

fn step(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("==> {name}");
    let start = Instant::now();
    work().map_err(|error| format!("{name}: {error}"))?;
    println!(
        "==> {name}: passed in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn cargo(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(arguments)
        .envs(variables.iter().copied());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "`cargo {}` ended with {status}",
            arguments.join(" ")
        )),
        Err(error) => Err(format!("cannot start cargo: {error}")),
    }
}
