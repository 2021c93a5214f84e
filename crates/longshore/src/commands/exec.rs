//! `longshore exec`: a command in an image.

use std::ffi::OsString;

use clap::Args;
use longshore_container::Action;

use crate::commands::action::{self, ActionOptions};
use crate::error::{CommandError, Status};
use crate::ui::Ui;

/// Run a command in an image, as yourself
///
/// Needs no privileges and no daemon. Your home, the current directory and /tmp are those of the host. The exit status is the
/// command's own; 125 means that Longshore could not start it, 126 that it cannot be executed, 127 that it is not there.
#[derive(Args)]
pub(crate) struct ExecArgs {
    /// Image and command: a directory or a reference, then a program with its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["IMAGE", "COMMAND"])]
    words: Vec<OsString>,
    #[command(flatten)]
    options: ActionOptions,
}

pub(crate) fn run(ui: &mut Ui, args: &ExecArgs) -> Result<Status, CommandError> {
    let session = action::session()?;
    let (image, command) = action::image_and_rest(&args.words);
    action::perform(ui, &session, image, Action::Exec(command), &args.options)
}
