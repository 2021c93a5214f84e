//! Automation of the project.

mod record_host;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    RecordHost(record_host::RecordHostArgs),
}

// A task talks to whoever started it.
#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    let done = match &Cli::parse().task {
        Task::RecordHost(args) => record_host::run(args),
    };
    match done {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
