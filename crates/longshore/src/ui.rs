//! The only place that writes to the terminal: results to stdout, all else to stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::error::{CommandError, Kind};

/// How much the user wants to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// What matters.
    Normal,
    /// Also what was chosen and why.
    Verbose,
}

/// The user's side of a command.
pub(crate) struct Ui {
    verbosity: Verbosity,
}

impl Ui {
    pub(crate) fn new(verbosity: Verbosity) -> Ui {
        Ui { verbosity }
    }

    /// Writes a result to stdout.
    ///
    /// # Errors
    ///
    /// A full disk or a closed descriptor is an error of the command: its result was not delivered.
    pub(crate) fn result(&mut self, text: &str) -> Result<(), CommandError> {
        let mut out = anstream::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| {
            if text.ends_with('\n') || text.is_empty() {
                Ok(())
            } else {
                out.write_all(b"\n")
            }
        });
        written
            .and_then(|()| out.flush())
            .map_err(|error| stdout_error(&error))
    }

    /// Writes one record as one line of JSON to stdout.
    pub(crate) fn json(&mut self, record: &impl Serialize) -> Result<(), CommandError> {
        let line = serde_json::to_string(record).map_err(|error| {
            CommandError::new(
                Kind::Failed,
                format!("cannot write the result as JSON: {error}"),
            )
        })?;
        self.result(&line)
    }

    /// Tells something that the user should know although nothing failed.
    pub(crate) fn notice(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.line("notice", "\x1b[36m", text);
        }
    }

    /// Warns of something that may not be what the user meant.
    pub(crate) fn warning(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.line("warning", "\x1b[33m", text);
        }
    }

    /// Tells what was chosen and why, when asked for.
    pub(crate) fn detail(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Verbose {
            self.line("detail", "\x1b[2m", text);
        }
    }

    /// Tells why the command failed.
    pub(crate) fn error(&mut self, error: &CommandError) {
        self.line("error", "\x1b[1;31m", &error.to_string());
    }

    /// Whether progress may be drawn over itself: stderr is a terminal and the user wants to hear.
    pub(crate) fn draws_progress(&self) -> bool {
        self.verbosity >= Verbosity::Normal && io::stderr().is_terminal()
    }

    /// A line of progress for job logs.
    pub(crate) fn progress_line(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            let text = longshore_host::name_errors(text);
            let _ = writeln!(anstream::stderr().lock(), "{}", visible(&text));
        }
    }

    fn line(&mut self, label: &str, colour: &str, text: &str) {
        let text = longshore_host::name_errors(text);
        // There is nobody left to tell when stderr is closed.
        let text = visible(&text);
        let _ = writeln!(anstream::stderr().lock(), "{colour}{label}:\x1b[0m {text}");
    }
}

/// Writes control characters out: a name or label that an image's maker chose could otherwise speak
/// to the terminal itself.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let speaks = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    if !text.contains(speaks) {
        return text.into();
    }
    let mut written = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if speaks(letter) {
            written.extend(letter.escape_default());
        } else {
            written.push(letter);
        }
    }
    written.into()
}

fn stdout_error(error: &io::Error) -> CommandError {
    CommandError::new(
        Kind::Failed,
        format!("cannot write the result to standard output: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_speak_to_the_terminal() {
        assert_eq!(visible("a\nb\tü"), "a\nb\tü");
        assert_eq!(
            visible("a\u{1b}]0;title\u{7}\rb"),
            "a\\u{1b}]0;title\\u{7}\\rb"
        );
    }
}
