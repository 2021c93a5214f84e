//! `longshore doctor`: what this node can and cannot do, why, and what to do about it.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use longshore_host::{
    Ability, Fabric, Gpus, Host, Launcher, MpiInstall, Node, Place, Refusal, Who, apparmor_profile,
};
use serde::Serialize;

use crate::error::{CommandError, DONE, Kind, Status};
use crate::ui::Ui;

/// Tell what this node can and cannot do, and what to do about each "no"
///
/// Looks at the kernel, the file systems, the batch system, MPIs, fabrics and GPUs, and tries what
/// a container needs in a process of its own that leaves nothing behind. The exit status is 0 if
/// containers can run here, and 4 if not. Run it as the user who will run containers, on the kind
/// of node where they will run: `srun longshore doctor`.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Ask one question only, and let the exit status answer it
    #[arg(long, value_name = "QUESTION")]
    check: Option<Check>,
    /// Print one JSON object for the node and one for each check
    #[arg(long)]
    json: bool,
    /// Print the AppArmor profile that lets this program make user namespaces, and stop
    #[arg(long, conflicts_with_all = ["check", "json", "record"])]
    apparmor_profile: bool,
    /// Write what was looked at into a new folder, without names, for a bug report
    #[arg(long, value_name = "DIR", conflicts_with_all = ["check", "json"])]
    record: Option<PathBuf>,
}

/// A question that the exit status can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Check {
    /// Can containers run here?
    Run,
    /// Can images be fetched and unpacked here?
    Image,
    /// Both
    All,
}

/// The answer to one question.
#[derive(Serialize)]
struct Answer<'h> {
    r#type: &'static str,
    check: Check,
    ok: bool,
    refusals: Vec<&'h Refusal>,
}

#[derive(Serialize)]
struct HostRecord<'h> {
    r#type: &'static str,
    #[serde(flatten)]
    host: &'h Host,
}

pub(crate) fn run(ui: &mut Ui, args: &DoctorArgs) -> Result<Status, CommandError> {
    let node = Node::live();
    if args.apparmor_profile {
        ui.result(&apparmor_profile(&node.observed.program))?;
        return Ok(DONE);
    }
    if let Some(folder) = &args.record {
        return record(ui, &node, folder);
    }
    let host = Host::of(&node);
    let troubles = host.image_troubles();
    let answers = answers(&host, &troubles, args.check);
    if args.json {
        ui.json(&HostRecord {
            r#type: "host",
            host: &host,
        })?;
        for answer in &answers {
            ui.json(answer)?;
        }
    } else {
        let marks = Marks::for_terminal(std::io::stdout().is_terminal());
        let page = match args.check {
            None => page(&host, &troubles, &marks),
            Some(_) => answers
                .iter()
                .map(|answer| answer_lines(answer, &marks))
                .collect(),
        };
        ui.result(&page)?;
    }
    // Without a question the status tells what matters most.
    let decided = match args.check {
        None => &answers[..1],
        Some(_) => &answers[..],
    };
    if decided.iter().all(|answer| answer.ok) {
        Ok(DONE)
    } else {
        Ok(Kind::HostCannot.status())
    }
}

fn record(ui: &mut Ui, node: &Node, folder: &Path) -> Result<Status, CommandError> {
    std::fs::create_dir(folder).map_err(|error| {
        CommandError::from_error(Kind::Failed, &error)
            .context(format!("while making the folder {}", folder.display()))
            .hint("give the path of a folder that does not exist yet")
    })?;
    Host::record(node, folder).map_err(|error| CommandError::from_error(Kind::Failed, &error))?;
    ui.result(&format!("{}", folder.display()))?;
    ui.notice("look the folder over for names that you do not want to publish");
    Ok(DONE)
}

fn answers<'h>(host: &'h Host, troubles: &'h [Refusal], check: Option<Check>) -> Vec<Answer<'h>> {
    let answer = |check, refusals: Vec<&'h Refusal>| Answer {
        r#type: "check",
        check,
        ok: refusals.is_empty(),
        refusals,
    };
    let run = answer(
        Check::Run,
        host.can_run_containers().err().into_iter().collect(),
    );
    let image = answer(Check::Image, troubles.iter().collect());
    match check {
        Some(Check::Run) => vec![run],
        Some(Check::Image) => vec![image],
        Some(Check::All) | None => vec![run, image],
    }
}

/// How yes, no and "look here" are shown.
struct Marks {
    yes: &'static str,
    no: &'static str,
    unknown: &'static str,
    fact: &'static str,
    arrow: &'static str,
}

impl Marks {
    /// Job logs and pipes get ASCII; colours are taken off there by the `Ui`.
    fn for_terminal(terminal: bool) -> Marks {
        if terminal {
            Marks {
                yes: "\x1b[32m✓\x1b[0m",
                no: "\x1b[31m✗\x1b[0m",
                unknown: "?",
                fact: "·",
                arrow: "→",
            }
        } else {
            Marks {
                yes: "yes",
                no: "no ",
                unknown: "?  ",
                fact: "-  ",
                arrow: "->",
            }
        }
    }
}

fn answer_lines(answer: &Answer<'_>, marks: &Marks) -> String {
    let (mark, can) = if answer.ok {
        (marks.yes, "can")
    } else {
        (marks.no, "cannot")
    };
    let mut text = match answer.check {
        Check::Image => format!("{mark} images {can} be kept here\n"),
        Check::Run | Check::All => format!("{mark} containers {can} run here\n"),
    };
    for refusal in &answer.refusals {
        let _ = writeln!(text, "    {}", refusal.detail);
        remedy_lines(&mut text, refusal, marks, 4);
    }
    text
}

/// What to do, and the commands for it, indented.
fn remedy_lines(text: &mut String, refusal: &Refusal, marks: &Marks, indent: usize) {
    let who = match refusal.remedy.who {
        Who::User => "you can: ",
        Who::Administrator => "ask the administrator to: ",
        Who::Nobody => "",
    };
    let pad = " ".repeat(indent);
    let _ = writeln!(text, "{pad}{} {who}{}", marks.arrow, refusal.remedy.text);
    for command in &refusal.remedy.commands {
        let _ = writeln!(text, "{pad}     {command}");
    }
}

/// Width of the column of subjects.
const SUBJECT: usize = 20;

/// The page under construction.
struct Page<'m> {
    text: String,
    marks: &'m Marks,
}

impl Page<'_> {
    fn heading(&mut self, heading: &str) {
        let _ = write!(self.text, "\n\x1b[1m{heading}\x1b[0m\n");
    }

    fn line(&mut self, mark: &str, subject: &str, detail: &str) {
        let _ = writeln!(self.text, "  {mark} {subject:SUBJECT$}  {detail}");
    }

    fn fact(&mut self, subject: &str, detail: &str) {
        self.line(self.marks.fact, subject, detail);
    }

    fn refusal(&mut self, subject: &str, refusal: &Refusal) {
        self.line(self.marks.no, subject, &refusal.detail);
        remedy_lines(&mut self.text, refusal, self.marks, SUBJECT + 8);
    }

    fn ability(&mut self, subject: &str, ability: &Ability) {
        match ability {
            Ability::Yes { detail } => self.line(self.marks.yes, subject, detail),
            Ability::Unknown { detail } => self.line(self.marks.unknown, subject, detail),
            Ability::No(refusal) => self.refusal(subject, refusal),
        }
    }
}

/// The whole picture: the answer that matters first, then a subject a line.
fn page(host: &Host, troubles: &[Refusal], marks: &Marks) -> String {
    let mut page = Page {
        text: String::new(),
        marks,
    };
    match host.can_run_containers() {
        Ok(()) if host.abilities.user_namespace.is_yes() => {
            let _ = writeln!(page.text, "{} containers can run here", marks.yes);
        }
        Ok(()) => {
            let _ = writeln!(
                page.text,
                "{} nothing seen forbids containers here, but they could not be tried",
                marks.unknown
            );
        }
        Err(refusal) => {
            let _ = writeln!(
                page.text,
                "{} containers cannot run here: {}",
                marks.no, refusal.detail
            );
            remedy_lines(&mut page.text, refusal, marks, 4);
        }
    }
    if host.root && host.nesting.in_user_namespace != Some(true) {
        page.text.push_str(
            "    asked as root: ask again as an ordinary user, who may be allowed less\n",
        );
    }
    machine(&mut page, host);
    page.heading("Containers");
    // One cause is told once, with what to do; what follows from it in a word.
    let told = host.can_run_containers().err();
    for (subject, ability) in host.abilities.all() {
        match (ability.refusal(), told) {
            (Some(refusal), Some(cause)) if refusal.remedy == cause.remedy => {
                page.line(marks.no, subject, &format!("{}: see above", refusal.detail));
            }
            _ => page.ability(subject, ability),
        }
    }
    page.heading("File systems");
    for place in &host.places {
        places(&mut page, place, troubles);
    }
    page.heading("Jobs and networks");
    jobs(&mut page, host);
    page.heading("MPI");
    if host.mpis.is_empty() {
        page.fact(
            "installations",
            "none seen: load the site's module first, if there is one",
        );
    }
    for install in &host.mpis {
        page.fact(install.family.name(), &mpi_words(install));
    }
    page.heading("Accelerators");
    gpus(&mut page, &host.gpus);
    page.text
}

fn machine(page: &mut Page<'_>, host: &Host) {
    page.heading("Machine");
    let mut system = vec![
        host.distribution
            .as_ref()
            .map_or("unknown distribution", |known| known.name.as_str())
            .to_owned(),
    ];
    if !host.kernel.is_empty() {
        system.push(format!("Linux {}", host.kernel));
    }
    system.push(host.machine.clone());
    if let Some(version) = &host.glibc {
        system.push(format!("glibc {version}"));
    }
    page.fact("system", &system.join(", "));

    let cpus = &host.cpus;
    let mut words = format!("{} usable of {}", cpus.usable_count(), cpus.logical_count);
    if let (Some(cores), Some(sockets)) = (cpus.core_count, cpus.socket_count) {
        let _ = write!(
            words,
            " ({} in {})",
            count(cores, "core"),
            count(sockets, "socket")
        );
    }
    if !cpus.model.is_empty() {
        let _ = write!(words, ", {}", cpus.model);
    }
    if let Some(millis) = cpus.quota_millis {
        let _ = write!(
            words,
            ", quota of {}.{:03} processors",
            millis / 1000,
            millis % 1000
        );
    }
    page.fact("processors", &words);

    let memory = &host.memory;
    let bytes = |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), size);
    let mut words = format!(
        "{} available of {}",
        bytes(memory.available_bytes),
        bytes(memory.total_bytes)
    );
    if let Some(limit) = memory.limit_bytes {
        let _ = write!(words, ", limited to {} by the control group", size(limit));
    }
    page.fact("memory", &words);

    let nesting = &host.nesting;
    let mut inside = Vec::new();
    if let Some(runtime) = &nesting.container {
        inside.push(format!("a container of {runtime}"));
    }
    if nesting.chroot == Some(true) {
        inside.push("a chroot".to_owned());
    }
    if nesting.in_user_namespace == Some(true) {
        inside.push("a user namespace".to_owned());
    }
    if nesting.seccomp_filter == Some(true) {
        inside.push("a seccomp filter".to_owned());
    }
    if nesting.virtual_machine {
        inside.push("a virtual machine".to_owned());
    }
    if !inside.is_empty() {
        page.fact("inside", &inside.join(", "));
    }
}

fn places(page: &mut Page<'_>, place: &Place, troubles: &[Refusal]) {
    let mut words = format!("{}", place.path.display());
    let kind = place
        .file_system
        .as_deref()
        .unwrap_or("unknown file system");
    let reach = match place.network {
        Some(true) => " (network)",
        Some(false) => " (local)",
        None => "",
    };
    let _ = write!(words, ": {kind}{reach}");
    if let Some(free) = place.free_bytes {
        let _ = write!(words, ", {} free", size(free));
    }
    if let Some(inodes) = place.free_inodes {
        let _ = write!(words, ", {inodes} inodes free");
    }
    for (set, name) in [
        (place.read_only, "ro"),
        (place.noexec, "noexec"),
        (place.nosuid, "nosuid"),
        (place.nodev, "nodev"),
    ] {
        if set {
            let _ = write!(words, ", {name}");
        }
    }
    let trouble = place.trouble().filter(|trouble| troubles.contains(trouble));
    page.line(
        if trouble.is_some() {
            page.marks.no
        } else {
            page.marks.yes
        },
        place.kind.name(),
        &words,
    );
    if let Some(trouble) = trouble {
        let _ = writeln!(page.text, "{}{}", " ".repeat(SUBJECT + 8), trouble.detail);
        remedy_lines(&mut page.text, &trouble, page.marks, SUBJECT + 8);
    }
}

fn jobs(page: &mut Page<'_>, host: &Host) {
    if host.schedulers.is_empty() {
        page.fact("schedulers", "none on PATH");
    }
    for scheduler in &host.schedulers {
        let version = scheduler.version.as_deref().unwrap_or("version unknown");
        page.fact(
            &scheduler.name,
            &format!("{version} ({})", scheduler.client.display()),
        );
    }
    for job in &host.jobs {
        page.fact("inside job", &format!("{} of {}", job.id, job.scheduler));
    }
    for launcher in &host.launchers {
        page.fact("started by", &launcher_words(launcher));
    }
    for fabric in &host.fabrics {
        let mark = match (fabric.up, fabric.usable) {
            (Some(true), true) => page.marks.yes,
            (None, _) => page.marks.unknown,
            _ => page.marks.no,
        };
        page.line(mark, fabric.kind.name(), &fabric_words(fabric));
    }
    for device in &host.net_devices {
        let state = match device.up {
            Some(true) => "up",
            Some(false) => "down",
            None => "state unknown",
        };
        let speed = device
            .speed_mbit_per_s
            .map_or(String::new(), |speed| format!(", {speed} Mbit/s"));
        page.fact(&device.name, &format!("{state}{speed}"));
    }
}

fn launcher_words(launcher: &Launcher) -> String {
    let number =
        |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
    format!(
        "{}: rank {} of {}, {} of {} on this node",
        launcher.kind.name(),
        launcher.rank,
        number(launcher.size),
        number(launcher.local_rank),
        number(launcher.local_size),
    )
}

fn fabric_words(fabric: &Fabric) -> String {
    let mut words = fabric.device.clone();
    if let Some(port) = fabric.port {
        let _ = write!(words, " port {port}");
    }
    if let Some(model) = &fabric.model {
        let _ = write!(words, " ({model})");
    }
    words.push_str(match fabric.up {
        Some(true) => ", up",
        Some(false) => ", down",
        None => ", state unknown",
    });
    if let Some(rate) = &fabric.rate {
        let _ = write!(words, ", {rate}");
    }
    if !fabric.usable {
        words.push_str(", but its device node is missing: programs cannot use it");
    }
    words
}

fn mpi_words(install: &MpiInstall) -> String {
    let mut words = match &install.prefix {
        Some(prefix) => prefix.display().to_string(),
        None => "default folders".to_owned(),
    };
    let mut names: Vec<String> = install
        .libraries
        .iter()
        .filter_map(|library| Some(library.file_name()?.to_string_lossy().into_owned()))
        .collect();
    // libmpi.so.12 stands for libmpi.so.12.0.0, to which it is a link.
    let all = names.clone();
    names.retain(|name| {
        !all.iter()
            .any(|other| name.starts_with(&format!("{other}.")))
    });
    if names.is_empty() {
        words.push_str(", no library seen");
    } else {
        let _ = write!(words, ", {}", names.join(" "));
    }
    if let Some(launcher) = &install.launcher {
        let _ = write!(words, ", launcher {}", launcher.display());
    }
    let _ = write!(words, " (by {})", install.found_by.join(", "));
    words
}

fn gpus(page: &mut Page<'_>, gpus: &Gpus) {
    if gpus.devices.is_empty() {
        page.fact("GPUs", "none seen");
    }
    for gpu in &gpus.devices {
        let model = gpu.model.as_deref().unwrap_or("unknown model");
        match &gpu.device {
            Some(device) => {
                let words = format!("{model} at {} ({})", gpu.address, device.display());
                page.line(page.marks.yes, gpu.vendor.name(), &words);
            }
            None => {
                let words = format!(
                    "{model} at {}: its device node is missing, or not given to this job",
                    gpu.address
                );
                page.line(page.marks.no, gpu.vendor.name(), &words);
            }
        }
    }
    if let Some(version) = &gpus.nvidia_driver {
        page.fact("NVIDIA driver", version);
    }
    if let Some(version) = &gpus.amd_driver {
        page.fact("AMD driver", version);
    }
    if !gpus.cdi_specs.is_empty() {
        let specs: Vec<String> = gpus
            .cdi_specs
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        page.fact(
            "CDI",
            &format!("{} in {}", gpus.cdi_kinds.join(" "), specs.join(" ")),
        );
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Binary sizes, three digits at least.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 10_240 && unit + 1 < units.len() {
        value >>= 10;
        unit += 1;
    }
    format!("{value} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(name: &str) -> Host {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
        Host::from_recorded(&fixtures.join(name)).expect("the fixture is whole")
    }

    #[test]
    fn a_node_that_forbids_namespaces_is_told_first_with_the_commands() {
        let host = recorded("rhel8-no-userns");
        let page = page(&host, &host.image_troubles(), &Marks::for_terminal(false));
        let first: Vec<&str> = page.lines().take(4).collect();
        assert_eq!(
            first[0],
            "no  containers cannot run here: user.max_user_namespaces is 0 on this node"
        );
        assert!(first[1].contains("ask the administrator to: "), "{first:?}");
        assert!(
            first[2].contains("sysctl -w user.max_user_namespaces="),
            "{first:?}"
        );
    }

    #[test]
    fn one_cause_is_explained_once() {
        let host = recorded("ubuntu2404-apparmor");
        let page = page(&host, &host.image_troubles(), &Marks::for_terminal(false));
        let profile = "longshore doctor --apparmor-profile > /etc/apparmor.d/longshore";
        assert_eq!(page.matches(profile).count(), 1, "{page}");
        assert!(
            page.contains("overlay               needs a user namespace: see above"),
            "{page}"
        );
    }

    #[test]
    fn sizes_are_binary_and_short() {
        assert_eq!(size(500), "500 B");
        assert_eq!(size(24_684_084 * 1024), "23 GiB");
        assert_eq!(size(u64::MAX), "16383 PiB");
    }
}
