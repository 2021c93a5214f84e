//! Containers that stay: started apart from the terminal, joined later.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use longshore_sys::namespace::{self, Namespaces};
use longshore_sys::process::{self, Fork};
use longshore_sys::signal;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use crate::instances::InstanceRecord;
use crate::plan::RunPlan;

use super::supervise::{self, Role};
use super::{
    Outcome, StartError, Told, assembly, entry, failed, failed_with_hint, overlays, start,
};

/// Where the output of an instance goes.
#[derive(Debug)]
pub struct InstanceOutput {
    /// Its standard output.
    pub out: File,
    /// Its standard error.
    pub err: File,
}

/// Starts an instance, which keeps `held` open, and gives its first process, as seen from outside,
/// once it is ready; `None` where it could not start, which was then said by the process that tried.
///
/// As with [`execute`](super::execute), an error may be returned in a child of the calling process.
///
/// # Errors
///
/// [`StartError`] where the instance could not be started.
pub fn start_instance(
    plan: &RunPlan,
    output: &InstanceOutput,
    held: Option<BorrowedFd<'_>>,
    tell: &mut dyn FnMut(Told<'_>),
) -> Result<Option<i32>, StartError> {
    assert!(
        plan.namespaces.pid,
        "an instance ends with its first process"
    );
    let lock = overlays::lock(plan)?;
    let (reports, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(failed("pipe2", "make a pipe"))?;
    if let Fork::Parent(helper) =
        process::fork().map_err(failed("fork", "make a process for the instance"))?
    {
        drop(report);
        let mut text = String::new();
        File::from(reports)
            .read_to_string(&mut text)
            .map_err(failed("read", "hear of the instance"))?;
        rustix::process::waitpid(Pid::from_raw(helper), WaitOptions::empty())
            .map_err(failed("waitpid", "wait for the instance"))?;
        // The helper writes the number, and the first process adds a word when it is ready.
        return Ok(text.strip_suffix(" ready").and_then(|pid| pid.parse().ok()));
    }
    drop(reports);
    rustix::process::setsid().map_err(failed("setsid", "leave the terminal"))?;
    entry::enter(plan)?;
    signal::block_all().map_err(failed("sigprocmask", "hold signals back"))?;
    let mut report = File::from(report);
    // The number must be in the pipe before the first process says that it is ready.
    let (go, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(failed("pipe2", "make a pipe"))?;
    match process::fork().map_err(failed("fork", "make the instance's first process"))? {
        Fork::Parent(first) => {
            let _ = write!(report, "{first}");
            drop(told);
            process::exit_now(0)
        }
        Fork::Child => drop(told),
    }
    let _ = File::from(go).read(&mut [0]);
    assembly::assemble(plan, tell)?;
    redirect(output)?;
    let kept: Vec<BorrowedFd<'_>> = held
        .into_iter()
        .chain(lock.as_ref().map(|lock| lock.as_fd()))
        .collect();
    // The program outlives the caller too, and holds nothing that the caller waits for.
    process::close_all_on_exec_but(&kept).map_err(failed(
        "close_range",
        "keep the caller's files from the program",
    ))?;
    let program = start_program(plan)?;
    let _ = report.write_all(b" ready");
    drop(report);
    // From here on this process is on its own and never returns.
    process::close_all_but(&kept).map_err(failed("close_range", "let the caller's files go"))?;
    hold(program)
}

/// Starts what the instance runs, if anything.
fn start_program(plan: &RunPlan) -> Result<Option<i32>, StartError> {
    if plan.program.arguments.is_empty() {
        return Ok(None);
    }
    match process::fork().map_err(failed("fork", "make the program's process"))? {
        Fork::Parent(program) => Ok(Some(program)),
        Fork::Child => {
            signal::Mask::default()
                .restore()
                .map_err(failed("sigprocmask", "let signals through"))?;
            match start::start(plan)? {}
        }
    }
}

fn redirect(output: &InstanceOutput) -> Result<(), StartError> {
    let wrong = || failed("dup2", "write to the instance's logs");
    // The image may have no /dev/null; the read end of a pipe without a writer reads empty as well.
    let (nothing, _) = rustix::pipe::pipe().map_err(failed("pipe2", "make a pipe"))?;
    rustix::stdio::dup2_stdin(&nothing).map_err(wrong())?;
    rustix::stdio::dup2_stdout(&output.out).map_err(wrong())?;
    rustix::stdio::dup2_stderr(&output.err).map_err(wrong())
}

/// Is the first process of the instance until it is told to end.
fn hold(mut program: Option<i32>) -> ! {
    let mut ending = false;
    loop {
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            if Some(pid.as_raw_nonzero().get()) == program {
                program = None;
            }
        }
        if ending && program.is_none() {
            process::exit_now(0);
        }
        let Ok(arrived) = signal::wait() else {
            process::exit_now(1);
        };
        let number = arrived.number;
        if number == Signal::CHILD.as_raw() || !arrived.sent_by_process {
            continue;
        }
        ending |= [Signal::TERM, Signal::INT, Signal::QUIT]
            .map(Signal::as_raw)
            .contains(&number);
        if let Some(program) = program {
            // It may have ended in this moment; the next look tells.
            let _ = signal::send(program, number);
        }
    }
}

/// Runs the program of `plan` inside of a running instance.
///
/// # Errors
///
/// [`StartError`] where the instance cannot be entered or the program cannot be started.
pub fn join_instance(plan: &RunPlan, instance: &InstanceRecord) -> Result<Outcome, StartError> {
    let doing = || format!("enter the instance {}", instance.name);
    let target =
        open_instance(instance).map_err(failed_with_hint("pidfd_open", doing(), |_| {
            Some("`longshore instance list` shows those that run".into())
        }))?;
    let namespaces = Namespaces {
        user: instance.user,
        mount: true,
        pid: true,
        ipc: instance.ipc,
        net: instance.net,
        uts: instance.uts,
    };
    namespace::join(target.as_fd(), namespaces).map_err(failed("setns", doing()))?;
    let mask = signal::block_all().map_err(failed("sigprocmask", "hold signals back"))?;
    match process::fork().map_err(failed("fork", "make the program's process"))? {
        Fork::Parent(child) => supervise::supervise(child, Role::Outside),
        Fork::Child => {
            supervise::die_with_parent()?;
            mask.restore()
                .map_err(failed("sigprocmask", "let signals through"))?;
            match start::start(plan)? {}
        }
    }
}

/// The first process, held by a descriptor so that its number cannot come to mean another.
fn open_instance(instance: &InstanceRecord) -> std::io::Result<OwnedFd> {
    let pid = Pid::from_raw(instance.pid).ok_or(std::io::ErrorKind::NotFound)?;
    let target = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    if instance.is_alive() {
        Ok(target)
    } else {
        Err(rustix::io::Errno::SRCH.into())
    }
}

/// Sends a signal to the first process of an instance.
///
/// # Errors
///
/// Where it is gone.
pub fn signal_instance(instance: &InstanceRecord, number: i32) -> std::io::Result<()> {
    let target = open_instance(instance)?;
    let signal = Signal::from_named_raw(number).ok_or(std::io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_send_signal(target, signal)?)
}

/// Waits until an instance has ended, at most this long; whether it did.
///
/// # Errors
///
/// None but for a kernel without pidfds.
pub fn wait_for_instance(
    instance: &InstanceRecord,
    patience: std::time::Duration,
) -> std::io::Result<bool> {
    let Ok(target) = open_instance(instance) else {
        return Ok(true);
    };
    let timeout = rustix::event::Timespec::try_from(patience)
        .map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let mut fds = [rustix::event::PollFd::new(
        &target,
        rustix::event::PollFlags::IN,
    )];
    Ok(rustix::event::poll(&mut fds, Some(&timeout))? > 0)
}
