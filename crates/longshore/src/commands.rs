//! The list of commands; each is one file, named as the user types it.

mod bench;
mod study;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CommandError;
use crate::ui::Ui;

/// What `longshore` can be asked to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Bench(bench::BenchArgs),
    Study(study::StudyArgs),
}

impl Command {
    /// Runs the command and gives the exit status of the process.
    pub(crate) fn run(&self, ui: &mut Ui) -> Result<ExitCode, CommandError> {
        match self {
            Command::Bench(args) => bench::run(ui, args),
            Command::Study(args) => study::run(ui, args),
        }
    }
}
