//! The `longshore` command: reads arguments, calls the feature crates, and tells the outcome.
//!
//! Every command is *ask, plan, do, tell*; its arguments and its story are one file under
//! `commands/`. Only this crate prints, picks colours and knows exit statuses.

#![cfg_attr(not(test), no_main)]

mod commands;
mod error;
mod progress;
mod ui;

use std::ffi::OsString;

use clap::{Args, Parser};

use crate::error::Status;
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
    #[command(flatten)]
    loudness: Loudness,
    #[command(subcommand)]
    command: commands::Command,
}

/// How much is said; understood before and after the name of the command.
#[derive(Args)]
struct Loudness {
    /// Print errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Say more about what is done and why
    #[arg(short, long, global = true)]
    verbose: bool,
}

/// One command line without the tree of all others.
#[derive(Parser)]
struct Direct<A: Args> {
    #[command(flatten)]
    loudness: Loudness,
    #[command(flatten)]
    arguments: A,
}

/// Reads what starts a container by that command's own options.
///
/// Describing all commands to the parser costs a tenth of a container start. Whatever is not plainly
/// right here, help among it, is left to the whole tree, so that there is one set of messages.
fn parse_direct(arguments: &[OsString]) -> Option<Cli> {
    fn parse<A: Args>(words: &[OsString], command: fn(A) -> commands::Command) -> Option<Cli> {
        let Direct {
            loudness,
            arguments,
        } = Direct::<A>::try_parse_from(words).ok()?;
        let command = command(arguments);
        Some(Cli { loudness, command })
    }
    let words = arguments.get(1..)?;
    match words.first()?.to_str()? {
        "exec" => parse(words, commands::Command::Exec),
        "run" => parse(words, commands::Command::Run),
        _ => None,
    }
}

#[cfg(not(test))]
longshore_sys::c_main!(start);

// The tests of this crate have a `main` of their own, and leave this one alone.
#[cfg(test)]
fn main() {
    start();
}

/// Does what the command line asks for and gives the exit status of the process.
fn start() -> u8 {
    let Status(status) = run();
    status
}

fn run() -> Status {
    let arguments = commands::action::understand_docker(std::env::args_os().collect());
    let parsed = parse_direct(&arguments).map_or_else(|| Cli::try_parse_from(&arguments), Ok);
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout, and a reader that has left has seen enough.
            let _ = error.print();
            return commands::action::usage_status(&arguments, &error);
        }
    };
    let verbosity = match (cli.loudness.quiet, cli.loudness.verbose) {
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
