//! The list of commands; each is one file, named as the user types it.

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CommandError;
use crate::ui::Ui;

mod doctor;

/// What `longshore` can be asked to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Doctor(doctor::DoctorArgs),
}

impl Command {
    /// Runs the command and gives the exit status of the process.
    pub(crate) fn run(&self, ui: &mut Ui) -> Result<ExitCode, CommandError> {
        match self {
            Command::Doctor(args) => doctor::run(ui, args),
        }
    }
}
