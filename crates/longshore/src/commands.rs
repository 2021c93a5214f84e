//! The list of commands; each is one file, named as the user types it.

pub(crate) mod action;
mod bench;
mod cache;
mod doctor;
mod exec;
pub(crate) mod image_source;
mod images;
mod inspect;
mod instance;
mod plan_text;
pub(crate) mod pull;
mod run;
mod shell;
mod study;

use clap::Subcommand;

use crate::error::{CommandError, Status};
use crate::ui::Ui;

/// What `longshore` can be asked to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    Exec(exec::ExecArgs),
    Run(run::RunArgs),
    Shell(shell::ShellArgs),
    Pull(pull::PullArgs),
    Images(images::ImagesArgs),
    Inspect(inspect::InspectArgs),
    Cache(cache::CacheArgs),
    Doctor(doctor::DoctorArgs),
    Bench(bench::BenchArgs),
    Study(study::StudyArgs),
    Instance(instance::InstanceArgs),
}

impl Command {
    /// Runs the command and gives the exit status of the process.
    pub(crate) fn run(&self, ui: &mut Ui) -> Result<Status, CommandError> {
        match self {
            Command::Exec(args) => exec::run(ui, args),
            Command::Run(args) => run::run(ui, args),
            Command::Shell(args) => shell::run(ui, args),
            Command::Pull(args) => pull::run(ui, args),
            Command::Images(args) => images::run(ui, args),
            Command::Inspect(args) => inspect::run(ui, args),
            Command::Cache(args) => cache::run(ui, args),
            Command::Doctor(args) => doctor::run(ui, args),
            Command::Bench(args) => bench::run(ui, args),
            Command::Study(args) => study::run(ui, args),
            Command::Instance(args) => instance::run(ui, args),
        }
    }
}
