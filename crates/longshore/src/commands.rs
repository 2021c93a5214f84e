//! The list of commands; each is one file, named as the user types it.

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CommandError;
use crate::ui::Ui;

/// What `longshore` can be asked to do.
#[derive(Subcommand)]
pub(crate) enum Command {}

impl Command {
    /// Runs the command and gives the exit status of the process.
    pub(crate) fn run(&self, _ui: &mut Ui) -> Result<ExitCode, CommandError> {
        match *self {}
    }
}
