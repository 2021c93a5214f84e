//! Any program: its time from start to end, its CPU time, its memory.

use longshore_study::{Axis, Metric, Probe, Reading, Setting, Study, Variant};
use longshore_study::{Workload, WorkloadError};

use super::{LIMIT, program_metrics, read_program};
use crate::process::Programs;
use crate::{Bench, SetupError, words};

/// Settings besides `kind`.
pub(crate) const KEYS: &[&str] = &["cmd", "status"];

/// The `command` workload.
///
/// `cmd` is the command as a list of words (or one text, split as a shell would); `{axis}` stands
/// for what the variant has on that axis. `status` is the exit status that is wanted, 0 by default.
pub(crate) struct CommandWorkload {
    programs: Programs,
    command: Vec<String>,
    axes: Vec<Axis>,
    status: i32,
}

impl CommandWorkload {
    pub(crate) fn new(study: &Study, bench: &Bench<'_>) -> Result<CommandWorkload, SetupError> {
        let command = match study.workload.get("cmd") {
            Some(Setting::List(words)) => words.clone(),
            Some(Setting::Text(text)) => words::split(text).map_err(SetupError::Setting)?,
            _ => Vec::new(),
        };
        if command.is_empty() {
            return Err(SetupError::Setting(
                "the workload `command` needs `cmd`, a command as a list of words".to_owned(),
            ));
        }
        let status = match study.workload.get("status") {
            None => 0,
            Some(Setting::Number(status)) if (0.0..=255.0).contains(status) => *status as i32,
            Some(other) => {
                return Err(SetupError::Setting(format!(
                    "`status = {other}` is not an exit status"
                )));
            }
        };
        Ok(CommandWorkload {
            programs: Programs::new(bench.session, LIMIT)?,
            command,
            axes: study.axes.clone(),
            status,
        })
    }

    fn argv(&self, variant: &Variant) -> Vec<String> {
        let values: Vec<(&str, Vec<String>)> = variant
            .0
            .iter()
            .filter_map(|(name, label)| {
                let axis = self.axes.iter().find(|axis| axis.name == *name)?;
                let words = match axis.value(label)? {
                    // An empty text stands for no word at all, as in `where = { host = "" }`.
                    Setting::Text(text) if text.is_empty() => Vec::new(),
                    setting => setting.words(),
                };
                Some((name.as_str(), words))
            })
            .collect();
        words::fill(&self.command, &values)
    }
}

impl Workload for CommandWorkload {
    fn kind(&self) -> &str {
        "command"
    }

    fn metrics(&self) -> Vec<Metric> {
        program_metrics()
    }

    fn facts(&self) -> Vec<(String, String)> {
        vec![("command".to_owned(), words::shown(&self.command))]
    }

    fn prepare(&mut self, _: &Variant) -> Result<Result<(), String>, WorkloadError> {
        Ok(Ok(()))
    }

    fn measure(&mut self, variant: &Variant) -> Result<Reading, WorkloadError> {
        read_program(&self.programs, &self.argv(variant), self.status)
    }

    fn surroundings(&mut self) -> Vec<Probe> {
        self.programs.surroundings()
    }
}
