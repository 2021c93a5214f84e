//! The conditions under which something is measured: fixed ones, and what disturbs it meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// What of a machine bears on a measurement and does not change while it lasts.
///
/// Whatever cannot be read is absent; a reader is told nothing rather than a guess.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Conditions {
    /// Kernel release.
    pub kernel: Option<String>,
    /// Name of the distribution.
    pub system: Option<String>,
    /// Architecture.
    pub architecture: &'static str,
    /// Model of the first CPU.
    pub cpu_model: Option<String>,
    /// CPUs that this process may use.
    pub cpus_allowed: Option<String>,
    /// Whether the machine is a virtual one.
    pub hypervisor: Option<bool>,
    /// CPU share granted by the control group, in CPUs.
    pub cpu_quota: Option<f64>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Setting of transparent huge pages.
    pub transparent_huge_pages: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Processes waiting or running over the last minute.
    pub load_1min: Option<f64>,
    /// Effective user id.
    pub uid: u32,
}

/// Counters of disturbance; two of them make a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Microseconds in which some task waited for a CPU (PSI, `some`).
    pub cpu_waiting_us: Option<u64>,
    /// Microseconds in which some task waited for I/O (PSI, `some`).
    pub io_waiting_us: Option<u64>,
    /// Clock ticks (1/100 s) that the hypervisor gave to others, over all CPUs.
    pub steal_ticks: Option<u64>,
    /// Clock ticks of all kinds over all CPUs.
    pub all_ticks: Option<u64>,
    /// Microseconds in which the control group was held back by its quota.
    pub throttled_us: Option<u64>,
}

impl Conditions {
    /// Reads them from the running system.
    pub fn probe() -> Conditions {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        Conditions {
            kernel: read_line("/proc/sys/kernel/osrelease"),
            system: read("/etc/os-release").and_then(|text| pretty_name(&text)),
            architecture: std::env::consts::ARCH,
            cpu_model: field(&cpuinfo, "model name").map(str::to_owned),
            cpus_allowed: read("/proc/self/status")
                .and_then(|text| field(&text, "Cpus_allowed_list").map(str::to_owned)),
            hypervisor: field(&cpuinfo, "flags")
                .map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            cpu_quota: cpu_quota(),
            governor: read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            transparent_huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            memory_bytes: read("/proc/meminfo").and_then(|text| {
                let kib = field(&text, "MemTotal")?.strip_suffix(" kB")?.trim();
                kib.parse::<u64>().ok()?.checked_mul(1024)
            }),
            load_1min: load(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

impl Disturbance {
    /// Reads the counters as they stand.
    pub fn now() -> Disturbance {
        let pressure = |what: &str| {
            read(&format!("/proc/pressure/{what}")).and_then(|text| some_total_us(&text))
        };
        let ticks = read("/proc/stat").and_then(|text| cpu_ticks(&text));
        Disturbance {
            cpu_waiting_us: pressure("cpu"),
            io_waiting_us: pressure("io"),
            steal_ticks: ticks.map(|(steal, _)| steal),
            all_ticks: ticks.map(|(_, all)| all),
            throttled_us: throttled_us(),
        }
    }
}

/// Processes waiting or running over the last minute.
pub fn load() -> Option<f64> {
    read("/proc/loadavg")?.split(' ').next()?.parse().ok()
}

/// The full path of a program on a search path, if it is an executable file.
///
/// A name with a slash is taken as a path.
pub fn find_program(name: &str, search: &std::ffi::OsStr) -> Option<PathBuf> {
    use rustix::fs::{Access, access};
    let runs = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(runs);
    }
    std::env::split_paths(search)
        .map(|folder| folder.join(name))
        .find(runs)
}

fn read(path: &str) -> Option<String> {
    fs::read(path)
        .ok()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn read_line(path: &str) -> Option<String> {
    read(path).map(|text| text.trim().to_owned())
}

/// The value of the first `name : value` line.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

fn pretty_name(os_release: &str) -> Option<String> {
    os_release.lines().find_map(|line| {
        let value = line.strip_prefix("PRETTY_NAME=")?;
        Some(value.trim_matches('"').to_owned())
    })
}

/// The word in brackets of a sysfs choice.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// `total=` of the `some` line of a pressure file, in microseconds.
fn some_total_us(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split(' ')
        .find_map(|word| word.strip_prefix("total="))?
        .parse()
        .ok()
}

/// Steal and all ticks of the `cpu` line (proc_stat(5)); guest time is in user time already.
fn cpu_ticks(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .map_while(|word| word.parse().ok())
        .collect();
    let all = ticks
        .iter()
        .fold(0u64, |sum, ticks| sum.saturating_add(*ticks));
    Some((*ticks.get(7)?, all))
}

/// Folders of this process's control group that hold its CPU accounting, v2 first.
fn cpu_groups() -> Vec<PathBuf> {
    let Some(text) = read("/proc/self/cgroup") else {
        return Vec::new();
    };
    let mut groups = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
                groups.insert(0, Path::new(root).join(path));
            }
        } else if controllers.split(',').any(|name| name == "cpu") {
            groups.push(Path::new("/sys/fs/cgroup").join(controllers).join(path));
            groups.push(Path::new("/sys/fs/cgroup/cpu").join(path));
        }
    }
    groups
}

fn throttled_us() -> Option<u64> {
    cpu_groups().iter().find_map(|group| {
        let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(' ')?;
            let value: u64 = value.trim().parse().ok()?;
            match name {
                "throttled_usec" => Some(value),
                // Version 1 counts nanoseconds.
                "throttled_time" => Some(value / 1000),
                _ => None,
            }
        })
    })
}

fn cpu_quota() -> Option<f64> {
    cpu_groups().iter().find_map(|group| {
        let number = |name: &str| -> Option<f64> {
            fs::read_to_string(group.join(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        if let Ok(text) = fs::read_to_string(group.join("cpu.max")) {
            let (quota, period) = text.trim().split_once(' ')?;
            return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
        }
        let quota = number("cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
        Some(quota / number("cpu.cfs_period_us")?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_kernels_texts() {
        let psi = "some avg10=0.12 avg60=0.1 avg300=0.0 total=1234\nfull avg10=0 total=5\n";
        assert_eq!(some_total_us(psi), Some(1234));
        assert_eq!(
            cpu_ticks("cpu  10 20 30 40 50 60 70 80 90 5\ncpu0 1\n"),
            Some((80, 360))
        );
        assert_eq!(
            chosen("always [madvise] never\n").as_deref(),
            Some("madvise")
        );
        assert_eq!(
            pretty_name("NAME=x\nPRETTY_NAME=\"Debian 12\"\n").as_deref(),
            Some("Debian 12")
        );
        assert_eq!(
            field("a\t: 1\nmodel name\t: X: Y\n", "model name"),
            Some("X: Y")
        );
    }

    #[test]
    fn garbage_gives_nothing() {
        for text in ["", "some", "some total=x", "cpu ", "cpu  1 2", "[", "]["] {
            assert_eq!(some_total_us(text), None);
            assert_eq!(cpu_ticks(text), None);
        }
        assert_eq!(chosen("["), None);
    }

    #[test]
    fn this_machine_can_be_probed() {
        let conditions = Conditions::probe();
        assert!(conditions.kernel.is_some());
        assert!(conditions.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(Disturbance::now().all_ticks.is_some());
    }
}
