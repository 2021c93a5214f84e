//! `longshore run`: the program that an image was made for.

use std::ffi::OsString;

use clap::Args;
use longshore_container::Action;

use crate::commands::action::{self, ActionOptions};
use crate::error::{CommandError, Status};
use crate::ui::Ui;

/// Run the program that an image was made for
///
/// That is its /.singularity.d/runscript, else its ENTRYPOINT and CMD; arguments take the place of CMD, as with Docker, and
/// reach the program byte for byte. An image's WORKDIR is where it starts. The exit status is the program's own.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Image, a directory or a reference, and arguments for its program
    #[arg(required = true, trailing_var_arg = true, value_names = ["IMAGE", "ARGUMENT"])]
    words: Vec<OsString>,
    #[command(flatten)]
    options: ActionOptions,
}

pub(crate) fn run(ui: &mut Ui, args: &RunArgs) -> Result<Status, CommandError> {
    let session = action::session()?;
    let (image, arguments) = action::image_and_rest(&args.words);
    action::perform(ui, &session, image, Action::Run(arguments), &args.options)
}
