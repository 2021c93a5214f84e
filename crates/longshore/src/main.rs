//! The `longshore` command: reads arguments, calls the feature crates, and tells the outcome.
//!
//! Every command is *ask, plan, do, tell*; its arguments and its story are one file under
//! `commands/`. Only this crate prints, picks colours and knows exit statuses.

mod commands;
mod error;
mod progress;
mod ui;

use std::process::ExitCode;

use clap::Parser;

use crate::ui::{Ui, Verbosity};

/// Takes an HPC job to a machine and proves that it runs there at the speed of the hardware
#[derive(Parser)]
#[command(
    name = "longshore",
    version,
    propagate_version = true,
    max_term_width = 100
)]
struct Cli {
    /// Print errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Say more about what is done and why
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    longshore_sys::process::restore_sigpipe();
    let arguments = commands::action::understand_docker(std::env::args_os().collect());
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout, and a reader that has left has seen enough.
            let _ = error.print();
            return commands::action::usage_status(&arguments, &error);
        }
    };
    let verbosity = match (cli.quiet, cli.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    };
    let mut ui = Ui::new(verbosity);
    match cli.command.run(&mut ui) {
        Ok(status) => status,
        Err(error) => {
            ui.error(&error);
            error.status()
        }
    }
}
