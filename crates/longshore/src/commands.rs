//! The list of commands; each is one file, named as the user types it.

pub(crate) mod action;
mod exec;
pub(crate) mod image_source;
mod instance;
mod plan_text;
mod run;
mod shell;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::CommandError;
use crate::ui::Ui;

/// What `longshore` can be asked to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Exec(exec::ExecArgs),
    Run(run::RunArgs),
    Shell(shell::ShellArgs),
    Instance(instance::InstanceArgs),
}

impl Command {
    /// Runs the command and gives the exit status of the process.
    pub(crate) fn run(&self, ui: &mut Ui) -> Result<ExitCode, CommandError> {
        match self {
            Command::Exec(args) => exec::run(ui, args),
            Command::Run(args) => run::run(ui, args),
            Command::Shell(args) => shell::run(ui, args),
            Command::Instance(args) => instance::run(ui, args),
        }
    }
}
