//! `longshore shell`: look around in an image.

use std::ffi::OsString;

use clap::Args;
use longshore_container::Action;

use crate::commands::action::{self, ActionOptions};
use crate::error::{CommandError, Status};
use crate::ui::Ui;

/// Open a shell in an image
///
/// bash without its start-up files where the image has it, else sh.
#[derive(Args)]
pub(crate) struct ShellArgs {
    /// The shell to start, a path in the image
    #[arg(short, long, value_name = "PATH")]
    shell: Option<OsString>,
    /// Image, a directory or a reference, and arguments for the shell
    #[arg(required = true, trailing_var_arg = true, value_names = ["IMAGE", "ARGUMENT"])]
    words: Vec<OsString>,
    #[command(flatten)]
    options: ActionOptions,
}

pub(crate) fn run(ui: &mut Ui, args: &ShellArgs) -> Result<Status, CommandError> {
    let session = action::session()?;
    let (image, arguments) = action::image_and_rest(&args.words);
    let shell = args
        .shell
        .clone()
        .or_else(|| action::setting(&session, "SHELL"));
    action::perform(
        ui,
        &session,
        image,
        Action::Shell(shell, arguments),
        &args.options,
    )
}
