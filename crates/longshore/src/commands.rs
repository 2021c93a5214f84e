//! The list of commands; each is one file, named as the user types it.

mod cache;
mod images;
mod inspect;
pub(crate) mod pull;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CommandError;
use crate::ui::Ui;

/// What `longshore` can be asked to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Cache(cache::CacheArgs),
    Images(images::ImagesArgs),
    Inspect(inspect::InspectArgs),
    Pull(pull::PullArgs),
}

impl Command {
    /// Runs the command and gives the exit status of the process.
    pub(crate) fn run(&self, ui: &mut Ui) -> Result<ExitCode, CommandError> {
        match self {
            Command::Cache(args) => cache::run(ui, args),
            Command::Images(args) => images::run(ui, args),
            Command::Inspect(args) => inspect::run(ui, args),
            Command::Pull(args) => pull::run(ui, args),
        }
    }
}
