//! One program, started, watched and accounted for: the unit of everything that is timed here.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use longshore_host::{Disturbance, Session};
use longshore_study::{Effect, Probe, WorkloadError};
use longshore_sys::children::{Ended, HeldSignals, die_with_parent, own_peak_bytes, reap};
use rustix::fs::MemfdFlags;
use sha2::{Digest, Sha256};

/// More output than this is not kept, and not compared.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;

/// Share of a run in which the control group was held back that makes it no measurement.
const MAX_THROTTLED: f64 = 0.01;

/// Starts programs in fixed surroundings and measures them.
pub(crate) struct Programs {
    signals: HeldSignals,
    env: Vec<(OsString, OsString)>,
    folder: PathBuf,
    limit: Duration,
    last: Disturbance,
    since: Instant,
}

/// What one run of a program gave.
pub(crate) struct Outcome {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// Nothing where it is no larger than that of this process, which the child started as.
    pub(crate) peak_bytes: Option<u64>,
    pub(crate) status: ExitStatus,
    /// SHA-256 of standard output; nothing where it was too long.
    pub(crate) output: Option<String>,
    /// The last lines of standard error.
    pub(crate) complaint: String,
    /// Seconds in which the control group was held back.
    pub(crate) throttled: Option<Duration>,
    pub(crate) timed_out: bool,
}

/// A program could not be measured.
pub(crate) enum ProgramError {
    /// It could not be started.
    NotStarted(String),
    /// The study is asked to end.
    Stop(WorkloadError),
}

impl Programs {
    /// Takes the caller's environment and current folder.
    pub(crate) fn new(session: &Session, limit: Duration) -> Result<Programs, WorkloadError> {
        let signals = HeldSignals::hold().map_err(|error| WorkloadError::Broken {
            message: format!("cannot hold back the signals that end a study: {error}"),
        })?;
        Ok(Programs {
            signals,
            env: session.env.clone(),
            folder: session.cwd.clone(),
            limit,
            last: Disturbance::now(),
            since: Instant::now(),
        })
    }

    /// Sets a variable for all programs.
    pub(crate) fn set_env(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.as_ref().to_owned()));
    }

    /// Fails if the study was asked to end, for use between the steps of a long preparation.
    pub(crate) fn check_stop(&self) -> Result<(), WorkloadError> {
        match self.signals.pending() {
            Some(signal) => Err(WorkloadError::Interrupted { signal }),
            None => Ok(()),
        }
    }

    /// Runs a program to its end.
    ///
    /// The wall clock covers everything between the call to start it and its end, the fork of this
    /// process included; CPU time and memory are those of the program and of what it reaped.
    pub(crate) fn run(&self, argv: &[String]) -> Result<Outcome, ProgramError> {
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| ProgramError::NotStarted("the command is empty".to_owned()))?;
        let broken = |error: io::Error| {
            ProgramError::NotStarted(format!("cannot keep the output of `{program}`: {error}"))
        };
        let mut output = memory_file("output").map_err(broken)?;
        let mut complaints = memory_file("complaints").map_err(broken)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(broken)?)
            .stderr(complaints.try_clone().map_err(broken)?);
        die_with_parent(&mut command);
        let before = Disturbance::now().throttled_us;
        let begun = Instant::now();
        let mut child = command.spawn().map_err(|error| {
            ProgramError::NotStarted(format!("cannot start `{program}`: {error}"))
        })?;
        let ended = self.signals.wait(&child, Some(self.limit));
        let wall = begun.elapsed();
        if !matches!(ended, Ok(Ended::Child)) {
            // It may have ended in between; then there is nothing left to kill.
            let _ = child.kill();
        }
        let usage = reap(child).map_err(|error| {
            ProgramError::NotStarted(format!("cannot tell how `{program}` ended: {error}"))
        })?;
        match ended {
            Ok(Ended::Signal(signal)) => {
                return Err(ProgramError::Stop(WorkloadError::Interrupted { signal }));
            }
            Ok(Ended::Child | Ended::Timeout) => {}
            Err(error) => {
                return Err(ProgramError::NotStarted(format!(
                    "cannot watch `{program}`: {error}"
                )));
            }
        }
        let throttled = before
            .zip(Disturbance::now().throttled_us)
            .map(|(before, after)| Duration::from_micros(after.saturating_sub(before)));
        Ok(Outcome {
            wall,
            cpu: usage.user + usage.system,
            peak_bytes: Some(usage.peak_bytes).filter(|bytes| *bytes > own_peak_bytes()),
            status: ExitStatus::from_raw(usage.status),
            output: digest(&mut output).map_err(broken)?,
            complaint: tail(&mut complaints).map_err(broken)?,
            throttled,
            timed_out: matches!(ended, Ok(Ended::Timeout)),
        })
    }

    /// What the machine has been doing since the last call.
    ///
    /// The kernel brings its pressure totals up to date every two seconds, so these are probes of a
    /// whole round, not of one start.
    pub(crate) fn surroundings(&mut self) -> Vec<Probe> {
        let now = Disturbance::now();
        let window = self.since.elapsed();
        let probes = disturbance_probes(self.last, now, window);
        self.last = now;
        self.since = Instant::now();
        probes
    }
}

/// Shares above which a round gets a remark.
const MAX_WAITING: f64 = 0.10;
const MAX_STEAL: f64 = 0.02;

fn disturbance_probes(before: Disturbance, after: Disturbance, window: Duration) -> Vec<Probe> {
    let mut probes = Vec::new();
    let delta =
        |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?) as f64);
    let mut add = |name: &str, share: Option<f64>, limit: f64, what: &str| {
        let Some(share) = share else { return };
        probes.push(Probe {
            probe: name.to_owned(),
            holds: share <= limit,
            effect: Effect::Flags,
            detail: format!("{what} {:.0} % of the time", share * 100.0),
        });
    };
    let window_us = (window.as_micros() as f64).max(1.0);
    add(
        "CPU pressure",
        delta(before.cpu_waiting_us, after.cpu_waiting_us).map(|us| us / window_us),
        MAX_WAITING,
        "tasks waited for a CPU",
    );
    add(
        "I/O pressure",
        delta(before.io_waiting_us, after.io_waiting_us).map(|us| us / window_us),
        MAX_WAITING,
        "tasks waited for I/O",
    );
    let ticks = delta(before.all_ticks, after.all_ticks).filter(|ticks| *ticks > 0.0);
    add(
        "steal",
        delta(before.steal_ticks, after.steal_ticks)
            .zip(ticks)
            .map(|(steal, all)| steal / all),
        MAX_STEAL,
        "the hypervisor ran others",
    );
    probes
}

impl Outcome {
    /// The checks that make its figures a measurement of a program that did its work.
    pub(crate) fn probes(&self, wanted_status: i32) -> Vec<Probe> {
        let mut probes = Vec::new();
        let right = self.status.code() == Some(wanted_status) && !self.timed_out;
        let mut detail = if self.timed_out {
            format!("still running after {:.0} s", self.wall.as_secs_f64())
        } else {
            match (self.status.code(), self.status.signal()) {
                (Some(code), _) if right => code.to_string(),
                (Some(code), _) => format!("{code} instead of {wanted_status}"),
                (None, Some(signal)) => format!("killed by signal {signal}"),
                (None, None) => "unknown".to_owned(),
            }
        };
        if !right && !self.complaint.is_empty() {
            detail.push_str(&format!("; it said: {}", self.complaint));
        }
        probes.push(Probe {
            probe: "exit status".to_owned(),
            holds: right,
            effect: Effect::Invalidates,
            detail,
        });
        if let Some(throttled) = self.throttled {
            let share = throttled.as_secs_f64() / self.wall.as_secs_f64().max(1e-9);
            probes.push(Probe {
                probe: "CPU quota".to_owned(),
                holds: share <= MAX_THROTTLED,
                effect: Effect::Invalidates,
                detail: format!("held back for {:.0} ms", throttled.as_secs_f64() * 1e3),
            });
        }
        probes
    }
}

fn memory_file(name: &str) -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create(
        name,
        MemfdFlags::CLOEXEC,
    )?))
}

fn digest(file: &mut File) -> io::Result<Option<String>> {
    if file.metadata()?.len() > MAX_OUTPUT_BYTES {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut buffer = [0; 1 << 14];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Ok(Some(hex(&hash.finalize())))
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The last lines of a file in one line of text.
fn tail(file: &mut File) -> io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(600)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let kept = &lines[lines.len().saturating_sub(3)..];
    Ok(kept.join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(limit: Duration) -> Programs {
        let session = Session::probe().expect("there is a current folder");
        Programs::new(&session, limit).unwrap_or_else(|error| panic!("{error}"))
    }

    fn run(script: &str) -> Outcome {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        match programs(Duration::from_secs(20)).run(&argv) {
            Ok(outcome) => outcome,
            Err(_) => panic!("a shell can be run"),
        }
    }

    #[test]
    fn a_wrong_exit_status_invalidates_and_tells_what_the_program_said() {
        let outcome = run("echo out; echo no such thing >&2; exit 3");
        let probe = &outcome.probes(0)[0];
        assert!(!probe.holds);
        assert_eq!(probe.detail, "3 instead of 0; it said: no such thing");
        assert!(outcome.probes(3)[0].holds);
    }

    #[test]
    fn the_same_output_has_the_same_digest_and_another_has_not() {
        assert_eq!(run("echo a").output, run("printf 'a\\n'").output);
        assert_ne!(run("echo a").output, run("echo b").output);
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_is_no_measurement() {
        let argv = ["/bin/sleep", "60"].map(str::to_owned);
        let Ok(outcome) = programs(Duration::from_millis(50)).run(&argv) else {
            panic!("sleep can be started");
        };
        assert!(outcome.wall < Duration::from_secs(30));
        assert!(!outcome.probes(0)[0].holds);
    }

    #[test]
    fn a_program_that_is_not_there_says_so() {
        let argv = ["/no/such/program".to_owned()];
        let Err(ProgramError::NotStarted(reason)) = programs(Duration::from_secs(1)).run(&argv)
        else {
            panic!("there is no such program");
        };
        assert!(reason.contains("/no/such/program"), "{reason}");
    }

    #[test]
    fn a_busy_machine_is_remarked_upon() {
        let before = Disturbance {
            cpu_waiting_us: Some(0),
            steal_ticks: Some(0),
            all_ticks: Some(0),
            ..Disturbance::default()
        };
        let after = Disturbance {
            cpu_waiting_us: Some(400_000),
            steal_ticks: Some(1),
            all_ticks: Some(200),
            ..Disturbance::default()
        };
        let probes = disturbance_probes(before, after, Duration::from_secs(1));
        assert_eq!(probes.len(), 2);
        assert!(!probes[0].holds && probes[1].holds);
        assert_eq!(probes[0].detail, "tasks waited for a CPU 40 % of the time");
    }
}
