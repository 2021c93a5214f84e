//! `longshore instance`: containers that stay after the command that started them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use longshore_container::{
    Action, EnvRequest, InstanceOutput, InstanceRecord, Instances, InstancesError, Origin, Pids,
    join_instance, signal_instance, start_instance, wait_for_instance,
};
use longshore_host::Session;
use serde::Serialize;

use crate::commands::action::{self, ActionOptions};
use crate::commands::image_source;
use crate::error::{CommandError, DONE, Kind, Status};
use crate::ui::Ui;

/// Start containers that stay, list and stop them
///
/// `longshore exec instance://NAME COMMAND` runs a command in one.
#[derive(Args)]
pub(crate) struct InstanceArgs {
    #[command(subcommand)]
    command: InstanceCommand,
}

#[derive(Subcommand)]
enum InstanceCommand {
    Start(StartArgs),
    Run(RunArgs),
    List(ListArgs),
    Stop(StopArgs),
}

/// Start an instance; its start script, if the image has one, gets the arguments
#[derive(Args)]
struct StartArgs {
    #[command(flatten)]
    start: InstanceStart,
}

/// Start an instance in which the image's own program runs, as `longshore run` would start it
#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    start: InstanceStart,
}

#[derive(Args)]
struct InstanceStart {
    /// Write the number of the first process to this file
    #[arg(long, value_name = "FILE")]
    pid_file: Option<std::path::PathBuf>,
    /// Image, name of the instance, and arguments
    #[arg(required = true, num_args = 2.., trailing_var_arg = true, value_names = ["IMAGE", "NAME", "ARGUMENT"])]
    words: Vec<OsString>,
    #[command(flatten)]
    options: ActionOptions,
}

/// List running instances
#[derive(Args)]
struct ListArgs {
    /// As one JSON object, in Apptainer's shape
    #[arg(short, long)]
    json: bool,
    /// Also where their output goes
    #[arg(short, long)]
    logs: bool,
    /// Only this one
    name: Option<String>,
}

/// Stop instances
#[derive(Args)]
struct StopArgs {
    /// All of yours on this node
    #[arg(short, long, conflicts_with = "name", required_unless_present = "name")]
    all: bool,
    /// Do not wait for them to end by themselves
    #[arg(short = 'F', long)]
    force: bool,
    /// The signal that asks them to end, by number or name
    #[arg(short, long, value_name = "SIGNAL", default_value = "TERM")]
    signal: String,
    /// Seconds to wait before they are killed
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
    /// The instance
    name: Option<String>,
}

pub(crate) fn run(ui: &mut Ui, args: &InstanceArgs) -> Result<Status, CommandError> {
    match &args.command {
        InstanceCommand::Start(args) => start(ui, &args.start, Action::Start),
        InstanceCommand::Run(args) => start(ui, &args.start, Action::Run),
        InstanceCommand::List(args) => list(ui, args),
        InstanceCommand::Stop(args) => stop(ui, args),
    }
}

fn open(session: &Session) -> Result<Instances, CommandError> {
    Instances::open(session).map_err(|error| failed(&error))
}

fn failed(error: &InstancesError) -> CommandError {
    let told = CommandError::from_error(Kind::Failed, error);
    match error {
        InstancesError::NotFound(_) => told.hint("`longshore instance list` shows those that run"),
        InstancesError::Exists(name) => {
            told.hint(format!("`longshore instance stop {name}` ends it"))
        }
        _ => told,
    }
}

fn start(
    ui: &mut Ui,
    args: &InstanceStart,
    action: fn(Vec<OsString>) -> Action,
) -> Result<Status, CommandError> {
    let session = action::session()?;
    let (image, rest) = action::image_and_rest(&args.words);
    let (name, arguments) = rest.split_first().expect("clap demands a name");
    let name = name.to_string_lossy().into_owned();
    let mut spec = args.options.spec(&session, action(arguments.to_vec()))?;
    // The instance ends with its first process, which therefore is its own.
    spec.isolate.pids = Pids::WithInit;
    spec.env.push(marker(&name));
    let (rootfs, image_lock) = image_source::open_locked(ui, &session, image, &args.options.image)?;
    let plan = action::planned(&session, &rootfs, &spec)?;
    if args.options.shows_plan() {
        return action::show(ui, &plan, &args.options);
    }
    let instances = open(&session)?;
    let lock = instances.take_name(&name).map_err(|error| failed(&error))?;
    action::tell(ui, &plan);
    let (log_out, log_err) = instances.logs(&name);
    let log = |path: &Path| {
        File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| {
                CommandError::new(
                    Kind::Failed,
                    format!("cannot open the log {}: {error}", path.display()),
                )
            })
    };
    let output = InstanceOutput {
        out: log(&log_out)?,
        err: log(&log_err)?,
    };
    // Before anything runs: an instance whose number could not be told would be left behind.
    let pid_file = match &args.pid_file {
        Some(path) => Some(File::create(path).map_err(|error| pid_file_error(path, &error))?),
        None => None,
    };
    let held = image_lock.as_ref().map(|lock| lock.as_fd());
    let started = start_instance(&plan, &output, held, &mut |told| action::hear(ui, told))
        .map_err(|error| action::start_error(&error, &rootfs))?;
    let Some(pid) = started else {
        return Err(CommandError::new(
            Kind::NotStarted,
            format!("instance {name} could not be started"),
        ));
    };
    let image = rootfs.name.to_string_lossy().into_owned();
    let record = InstanceRecord::new(
        &name,
        pid,
        image,
        &plan,
        spec.identity.fakeroot,
        (log_out, log_err),
    )
    .map_err(|error| {
        CommandError::new(
            Kind::Failed,
            format!("instance {name} ended at once: {error}"),
        )
    })?;
    instances.save(&record).map_err(|error| failed(&error))?;
    drop(lock);
    if let (Some(path), Some(mut file)) = (&args.pid_file, pid_file) {
        writeln!(file, "{pid}").map_err(|error| pid_file_error(path, &error))?;
    }
    ui.progress_line(&format!("instance started: {name}, process {pid}"));
    Ok(DONE)
}

fn marker(name: &str) -> EnvRequest {
    EnvRequest {
        name: "APPTAINER_INSTANCE".into(),
        value: name.into(),
        origin: Origin::Longshore,
    }
}

fn pid_file_error(path: &Path, error: &io::Error) -> CommandError {
    CommandError::new(
        Kind::Failed,
        format!(
            "cannot write the number of the process to {}: {error}",
            path.display()
        ),
    )
}

/// The name in `instance://NAME`.
pub(crate) fn name_in(image: &OsStr) -> Option<&str> {
    image.to_str()?.strip_prefix("instance://")
}

/// Runs a command in a running instance.
pub(crate) fn join(
    ui: &mut Ui,
    session: &Session,
    name: &str,
    action: Action,
    options: &ActionOptions,
) -> Result<Status, CommandError> {
    let record = open(session)?.find(name).map_err(|error| {
        CommandError::from_error(Kind::NotStarted, &error)
            .hint("`longshore instance list` shows those that run")
    })?;
    let mut spec = options.spec(session, action)?;
    // What the instance was started with holds for all that run in it.
    spec.mounts.clear();
    spec.identity.fakeroot = record.fakeroot;
    spec.isolate.user |= record.user && session.uid == 0;
    spec.env.push(marker(name));
    let rootfs = image_source::open(ui, session, OsStr::new(&record.image), &options.image)?;
    let plan = action::planned(session, &rootfs, &spec)?;
    if options.shows_plan() {
        return action::show(ui, &plan, options);
    }
    let outcome =
        join_instance(&plan, &record).map_err(|error| action::start_error(&error, &rootfs))?;
    action::ended(outcome)
}

/// Apptainer's shape, which scripts read.
#[derive(Serialize)]
struct ListRecord {
    instances: Vec<ListEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListEntry {
    instance: String,
    pid: i32,
    img: String,
    ip: String,
    log_err_path: String,
    log_out_path: String,
}

fn list(ui: &mut Ui, args: &ListArgs) -> Result<Status, CommandError> {
    let session = action::session()?;
    let mut list = open(&session)?.list().map_err(|error| failed(&error))?;
    if let Some(name) = &args.name {
        list.retain(|record| record.name == *name);
    }
    if args.json {
        let instances = list
            .into_iter()
            .map(|record| ListEntry {
                instance: record.name,
                pid: record.pid,
                img: record.image,
                ip: String::new(),
                log_err_path: record.log_err.to_string_lossy().into_owned(),
                log_out_path: record.log_out.to_string_lossy().into_owned(),
            })
            .collect();
        ui.json(&ListRecord { instances })?;
        return Ok(DONE);
    }
    let mut text = String::from("INSTANCE NAME    PID        IP              IMAGE\n");
    for record in &list {
        text.push_str(&format!(
            "{:<16} {:<10} {:<15} {}\n",
            record.name, record.pid, "", record.image
        ));
        if args.logs {
            text.push_str(&format!(
                "  {}\n  {}\n",
                record.log_err.display(),
                record.log_out.display()
            ));
        }
    }
    ui.result(&text)?;
    Ok(DONE)
}

fn stop(ui: &mut Ui, args: &StopArgs) -> Result<Status, CommandError> {
    let session = action::session()?;
    let instances = open(&session)?;
    let signal = signal_number(&args.signal).ok_or_else(|| {
        CommandError::new(
            Kind::Usage,
            format!(
                "`{}` is no signal; write a number or a name such as TERM",
                args.signal
            ),
        )
    })?;
    let records = match &args.name {
        Some(name) => vec![instances.find(name).map_err(|error| failed(&error))?],
        None => instances.list().map_err(|error| failed(&error))?,
    };
    for record in records {
        let ended = end(&record, args, signal).map_err(|error| {
            CommandError::new(
                Kind::Failed,
                format!(
                    "cannot stop instance {} (process {}): {error}",
                    record.name, record.pid
                ),
            )
        })?;
        instances.remove(&record.name);
        if !ended {
            ui.warning(&format!(
                "instance {} did not end in {} s and was killed",
                record.name, args.timeout
            ));
        }
        ui.progress_line(&format!(
            "instance stopped: {}, process {}",
            record.name, record.pid
        ));
    }
    Ok(DONE)
}

/// Whether it ended by itself.
fn end(record: &InstanceRecord, args: &StopArgs, signal: i32) -> io::Result<bool> {
    const KILL: i32 = 9;
    if !args.force {
        match signal_instance(record, signal) {
            Ok(()) if wait_for_instance(record, Duration::from_secs(args.timeout))? => {
                return Ok(true);
            }
            Ok(()) => {}
            // Gone already.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                return Ok(true);
            }
            Err(error) => return Err(error),
        }
    }
    signal_instance(record, KILL)?;
    wait_for_instance(record, Duration::from_secs(args.timeout.max(1)))?;
    Ok(args.force)
}

fn signal_number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    Some(match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "KILL" => 9,
        "USR1" => 10,
        "USR2" => 12,
        "TERM" => 15,
        _ => return None,
    })
}
