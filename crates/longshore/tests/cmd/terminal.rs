//! On a terminal: stop and continue, interrupts, window size, background jobs.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::{World, program, skip};

/// A shell of the host on a terminal of its own, with job control.
struct Terminal {
    master: File,
    shell: Child,
    seen: String,
}

/// Nothing here takes a second; a loaded machine gets more.
const PATIENCE: Duration = Duration::from_secs(30);

impl Terminal {
    fn new(world: &World) -> Option<Terminal> {
        let setsid = program("setsid")?;
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("has terminals");
        grantpt(&master).expect("own terminal");
        unlockpt(&master).expect("own terminal");
        let name = ptsname(&master, Vec::new()).expect("own terminal");
        let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
            .expect("own terminal");
        let end = || Stdio::from(slave.try_clone().expect("has descriptors"));
        let shell = world
            .host_command(setsid)
            .args(["--ctty", "/bin/sh", "-i"])
            .env("PS1", "ready$ ")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("can be started");
        let mut terminal = Terminal {
            master: File::from(master),
            shell,
            seen: String::new(),
        };
        terminal.wait_for("ready$ ");
        Some(terminal)
    }

    fn type_in(&mut self, text: &str) {
        self.master
            .write_all(text.as_bytes())
            .expect("the shell reads");
    }

    /// Reads until `text` is seen, and forgets all up to it.
    #[track_caller]
    fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{text:?} was not seen in {:?}", self.seen);
            let timeout = Timespec::try_from(left).expect("is short");
            let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
            if poll(&mut fds, Some(&timeout)).expect("can be waited for") > 0 {
                let mut bytes = [0; 4096];
                let count = self.master.read(&mut bytes).expect("the shell is there");
                self.seen
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Closing the terminal would do, but only when everything in it minds.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

const KINDS: [&str; 2] = ["", "--pid"];

#[test]
fn the_stop_key_stops_and_fg_continues() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for options in KINDS {
        let Some(mut terminal) = Terminal::new(&world) else {
            skip!("no setsid")
        };
        terminal.type_in(&format!(
            "{} exec {options} box sh -c 'echo start''ed; read x; echo got $x; exit 5'\n",
            world.path("bin/longshore").display()
        ));
        terminal.wait_for("started");
        terminal.type_in("\u{1a}");
        terminal.wait_for("Stopped");
        terminal.wait_for("ready$ ");
        terminal.type_in("fg\n");
        terminal.type_in("a word\n");
        terminal.wait_for("got a word");
        terminal.wait_for("ready$ ");
        terminal.type_in("echo status $?\n");
        terminal.wait_for("status 5");
    }
}

#[test]
fn the_interrupt_key_reaches_the_program_once() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for options in KINDS {
        let Some(mut terminal) = Terminal::new(&world) else {
            skip!("no setsid")
        };
        terminal.type_in(&format!(
            "{} exec {options} box sh -c 'n=0; trap \"n=\\$((n+1)); echo interrupt \\$n\" INT; echo start''ed; \
             while [ $n -lt 2 ]; do sleep 1; done; exit 6'\n",
            world.path("bin/longshore").display()
        ));
        terminal.wait_for("started");
        terminal.type_in("\u{3}");
        terminal.wait_for("interrupt 1");
        terminal.type_in("\u{3}");
        terminal.wait_for("interrupt 2");
        let rest = terminal.wait_for("ready$ ");
        assert!(!rest.contains("interrupt"), "{rest}");
        terminal.type_in("echo status $?\n");
        terminal.wait_for("status 6");
        // A program that handles nothing ends, and the shell sees by what.
        terminal.type_in(&format!(
            "{} exec {options} box sh -c 'echo start''ed; exec sleep 60'\n",
            world.path("bin/longshore").display()
        ));
        terminal.wait_for("started");
        terminal.type_in("\u{3}");
        terminal.wait_for("ready$ ");
        terminal.type_in("echo status $?\n");
        terminal.wait_for("status 130");
    }
}

#[test]
fn a_new_window_size_is_seen_inside() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for options in KINDS {
        let Some(mut terminal) = Terminal::new(&world) else {
            skip!("no setsid")
        };
        terminal.type_in(&format!(
            "{} exec {options} box sh -c 'trap \"stty size; exit\" WINCH; echo start''ed; while :; do sleep 0.1; done'\n",
            world.path("bin/longshore").display()
        ));
        terminal.wait_for("started");
        let size = Winsize {
            ws_row: 33,
            ws_col: 101,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(terminal.master.as_fd(), size).expect("own terminal");
        terminal.wait_for("33 101");
    }
}

#[test]
fn a_background_job_runs_beside_the_shell() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for options in KINDS {
        let Some(mut terminal) = Terminal::new(&world) else {
            skip!("no setsid")
        };
        let binary = world.path("bin/longshore");
        terminal.type_in(&format!(
            "{} exec {options} box sh -c 'echo start''ed; exec sleep 60' &\n",
            binary.display()
        ));
        // The shell itself ignores the signal until its child is under way.
        terminal.wait_for("started");
        terminal.type_in("\n");
        terminal.wait_for("ready$ ");
        terminal.type_in("jobs; kill %1; wait %1; echo status $?\n");
        terminal.wait_for("Running");
        terminal.wait_for("status 143");
        terminal.wait_for("ready$ ");
        // One that wants to read from the terminal is stopped, as on the host.
        terminal.type_in(&format!("{} exec {options} box cat &\n", binary.display()));
        terminal.wait_for("ready$ ");
        let deadline = Instant::now() + PATIENCE;
        loop {
            terminal.type_in("jobs\n");
            if terminal.wait_for("ready$ ").contains("Stopped") {
                break;
            }
            assert!(Instant::now() < deadline, "the job was not stopped");
        }
        terminal.type_in("kill -KILL %1; fg %1; echo status $?\n");
        terminal.wait_for("status 137");
    }
}
