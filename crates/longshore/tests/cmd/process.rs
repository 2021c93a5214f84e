//! The program is a process like on the host: signals, descriptors, limits, terminal.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{World, program, say, skip, succeed};

/// Starts, and waits until the program says that it is ready.
fn ready(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("can be started");
    let mut out = BufReader::new(child.stdout.take().expect("is piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("can be read");
    assert_eq!(line, "ready\n");
    (child, out)
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("is a pid")).expect("is not 0");
    kill_process(pid, signal).expect("is there");
}

const KINDS: [&[&str]; 3] = [&[], &["--pid"], &["--pid", "--no-init"]];

#[test]
fn a_program_that_traps_a_signal_gets_it() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for options in KINDS {
        for (signal, name) in [
            (Signal::TERM, "TERM"),
            (Signal::INT, "INT"),
            (Signal::HUP, "HUP"),
            (Signal::USR1, "USR1"),
        ] {
            let script = format!(
                "trap 'echo got {name}; exit 9' {name}; echo ready; while :; do read x < /dev/zero & wait; done"
            );
            let script = script.replace("read x < /dev/zero &", "sleep 60 &");
            let (mut child, mut out) = ready(
                world
                    .longshore()
                    .arg("exec")
                    .args(options)
                    .args(["box", "sh", "-c", &script]),
            );
            send(&child, signal);
            let mut line = String::new();
            out.read_line(&mut line).expect("can be read");
            assert_eq!(line, format!("got {name}\n"), "{options:?}");
            assert_eq!(child.wait().expect("ends").code(), Some(9), "{options:?}");
        }
    }
}

#[test]
fn a_program_that_a_signal_ends_is_seen_to_end_by_it() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for options in KINDS {
        let (mut child, _) = ready(world.longshore().arg("exec").args(options).args([
            "box",
            "sh",
            "-c",
            "echo ready; exec sleep 60",
        ]));
        // The first process of a namespace ignores what it does not handle, as the kernel has it.
        let signal = if options.contains(&"--no-init") {
            Signal::KILL
        } else {
            Signal::TERM
        };
        send(&child, signal);
        let status = child.wait().expect("ends");
        assert_eq!(
            status.signal(),
            Some(signal.as_raw()),
            "{options:?}: {status:?}"
        );
    }
}

#[test]
fn an_own_process_namespace_has_an_init_that_reaps_and_passes_statuses_on() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(world.longshore().args([
        "exec",
        "--pid",
        "box",
        "sh",
        "-c",
        "(sleep 0 & exec true) ; sleep 0; echo $$; ls -d /proc/[0-9]* | wc -l; cat /proc/1/comm",
    ]));
    assert_eq!(
        out,
        "2\n5\nlongshore\n".replace('5', out.lines().nth(1).expect("counted"))
    );
    let pids: usize = out
        .lines()
        .nth(1)
        .expect("counted")
        .parse()
        .expect("a number");
    assert!(pids <= 5, "{pids} processes are left in the namespace");
    let out = succeed(world.longshore().args([
        "exec",
        "--pid",
        "--no-init",
        "box",
        "sh",
        "-c",
        "echo $$",
    ]));
    assert_eq!(out, "1\n");
    let status = |script: &str| {
        say(world
            .longshore()
            .args(["exec", "--pid", "box", "sh", "-c", script]))
        .status
    };
    assert_eq!(status("exit 42"), Some(42));
    assert_eq!(
        say(world.longshore().args(["exec", "--pid", "box", "nosuch"])).status,
        Some(127)
    );
}

#[test]
fn the_container_ends_when_its_watcher_is_killed() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let (mut child, mut out) =
        ready(
            world
                .longshore()
                .args(["exec", "--pid", "box", "sh", "-c", "echo ready; sleep 60"]),
        );
    send(&child, Signal::KILL);
    child.wait().expect("ends");
    // The pipe closes when the last process that holds it is gone.
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("can be read");
    assert_eq!(rest, "");
}

#[test]
fn a_reader_that_leaves_ends_the_program_quietly() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let mut child = world
        .longshore()
        .args(["exec", "box", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("can be started");
    let mut out = child.stdout.take().expect("is piped");
    let mut some = [0; 64];
    out.read_exact(&mut some).expect("yes says yes");
    drop(out);
    assert_eq!(
        child.wait().expect("ends").signal(),
        Some(Signal::PIPE.as_raw())
    );
    let mut err = String::new();
    child
        .stderr
        .take()
        .expect("is piped")
        .read_to_string(&mut err)
        .expect("can be read");
    assert_eq!(err, "");
}

#[test]
fn standard_input_reaches_the_program() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    for options in KINDS {
        let mut child = world
            .longshore()
            .arg("exec")
            .args(options)
            .args(["box", "wc", "-c"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("can be started");
        child
            .stdin
            .take()
            .expect("is piped")
            .write_all(&[7; 100_000])
            .expect("is read");
        let output = child.wait_with_output().expect("ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "100000");
    }
}

#[test]
fn descriptors_umask_and_limits_are_inherited() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    world.write("work/input", "through seven\n");
    let binary = world.path("bin/longshore");
    let run = |before: &str| {
        let script = format!(
            "umask 027; ulimit -n 123; ulimit -c 0; \
             exec {before} sh -c 'read line <&7; echo $line; umask; ulimit -n; ls /proc/self/fd' 7< input"
        );
        let mut command = world.host_command("/bin/sh");
        succeed(command.args(["-c", &script]).arg(&binary))
    };
    let out = run("\"$0\" exec box");
    assert!(out.starts_with("through seven\n0027\n123\n0\n"), "{out}");
    // The same shell on the host tells which descriptors the test itself hands down.
    assert_eq!(
        out,
        run("box/bin/busybox"),
        "no descriptor of Longshore's is left"
    );
    let run = |options: &str| run(&format!("\"$0\" exec {options} box"));
    assert!(run("--pid").starts_with("through seven\n0027\n123\n"));
    assert!(run("--no-umask").starts_with("through seven\n0022\n123\n"));
}

#[test]
fn the_host_name_the_network_and_ipc_can_be_the_containers_own() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let out = succeed(
        world
            .longshore()
            .args(["exec", "--hostname", "lab-1", "box", "hostname"]),
    );
    assert_eq!(out, "lab-1\n");
    let out = succeed(world.longshore().args([
        "exec",
        "--net",
        "--network",
        "none",
        "box",
        "sh",
        "-c",
        "ip -o link | wc -l; ip addr show lo | grep -c 127.0.0.1",
    ]));
    assert_eq!(out, "1\n1\n");
    let said = say(world
        .longshore()
        .args(["exec", "--net", "--network", "bridge", "box", "true"]));
    assert_eq!(said.status, Some(125), "{}", said.err);
    let namespace = |kind: &str, options: &[&str]| {
        let mut command = world.longshore();
        command
            .arg("exec")
            .args(options)
            .args(["box", "readlink"])
            .arg(format!("/proc/self/ns/{kind}"));
        succeed(&mut command).trim().to_owned()
    };
    let host = |kind: &str| {
        fs::read_link(format!("/proc/self/ns/{kind}"))
            .expect("proc")
            .display()
            .to_string()
    };
    for (kind, option) in [("ipc", "--ipc"), ("uts", "--uts"), ("net", "--net")] {
        assert_eq!(namespace(kind, &[]), host(kind));
        assert_ne!(namespace(kind, &[option]), host(kind));
    }
}

#[test]
fn a_process_group_of_its_own_is_not_made() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let (mut child, mut out) = ready(
        world
            .longshore()
            .args([
                "exec",
                "box",
                "sh",
                "-c",
                "echo ready; cut -d' ' -f5 /proc/self/stat",
            ])
            .process_group(0),
    );
    let mut group = String::new();
    out.read_line(&mut group).expect("can be read");
    assert_eq!(group.trim(), child.id().to_string());
    child.wait().expect("ends");
}

#[test]
fn a_plain_start_makes_no_process_and_few_system_calls() {
    let Some(strace) = program("strace") else {
        skip!("no strace")
    };
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let mut command = world.host_command(strace);
    command
        .args(["-f", "-o", "trace"])
        .arg(world.path("bin/longshore"));
    succeed(command.args(["exec", "box", "true"]));
    let trace = fs::read_to_string(world.path("work/trace")).expect("was written");
    let calls: Vec<&str> = trace.lines().filter(|line| line.contains('(')).collect();
    assert!(calls.len() < 400, "{} system calls", calls.len());
    for name in ["clone(", "clone3(", "fork(", "vfork("] {
        assert!(
            !calls.iter().any(|line| line.contains(&format!(" {name}"))),
            "{name}"
        );
    }
    // The search of the program's path tries a few that are not there.
    let execs = calls
        .iter()
        .filter(|line| line.contains(" execve(") && line.ends_with("= 0"))
        .count();
    assert_eq!(execs, 2, "one for longshore and one for the program");
}

#[test]
fn a_pipe_signal_that_the_caller_ignores_stays_ignored_inside() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let ignores_pipe = |trap: &str, options: &str| {
        let script = format!("{trap} \"$0\" exec {options} box cat /proc/self/status");
        let mut command = world.host_command("/bin/sh");
        let status = succeed(
            command
                .args(["-c", &script])
                .arg(world.path("bin/longshore")),
        );
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(mask.expect("is told").trim(), 16).expect("is a mask");
        mask & 1 << (Signal::PIPE.as_raw() - 1) != 0
    };
    for options in ["", "--pid", "--pid --no-init"] {
        assert!(ignores_pipe("trap '' PIPE;", options), "{options}");
        assert!(!ignores_pipe("", options), "{options}");
    }
}

#[test]
fn a_reader_that_has_left_ends_a_command_by_the_signal_unless_the_caller_ignores_it() {
    let world = World::new();
    let status = |trap: &str| {
        let script = format!("{trap} \"$0\" doctor --apparmor-profile; echo $? >&2");
        let (reader, writer) = std::io::pipe().expect("there are pipes");
        drop(reader);
        let mut command = world.host_command("/bin/sh");
        let mut child = command
            .args(["-c", &script])
            .arg(world.path("bin/longshore"))
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .expect("can be started");
        let mut said = String::new();
        let err = child.stderr.as_mut().expect("is piped");
        err.read_to_string(&mut said).expect("is text");
        child.wait().expect("ends");
        said
    };
    assert_eq!(status(""), "141\n");
    assert_eq!(
        status("trap '' PIPE;"),
        "error: cannot write the result to standard output: Broken pipe (EPIPE)\n1\n"
    );
}

#[test]
fn a_standard_descriptor_that_the_caller_closed_is_not_given_to_a_file() {
    let world = World::new();
    let Some(_) = world.busybox_rootfs("box") else {
        skip!("no static busybox")
    };
    let script = r#""$0" exec box readlink /proc/self/fd/0 <&-; "$0" exec box readlink /proc/self/fd/2 2>&-"#;
    let said = say(world
        .host_command("sh")
        .args(["-c", script])
        .arg(world.path("bin/longshore")));
    assert_eq!(said.out, "/dev/null\n/dev/null\n", "{}", said.err);
}
