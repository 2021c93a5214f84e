//! Processors: how many, of which kind, and how many of them are ours.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::node::Node;

/// Processor features that decide which library or code path a program takes.
const FLAGS_OF_INTEREST: [&str; 22] = [
    // x86-64, by level
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "bmi2",
    "sha_ni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "amx_int8",
    "vaes",
    // aarch64
    "asimd",
    "sve",
    "sve2",
    "bf16",
    "i8mm",
    "sme",
    // a guest of a hypervisor
    "hypervisor",
];

/// The processors of the node, and the share of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// Logical processors that are online.
    pub logical_count: usize,
    /// Cores; `None` where the kernel does not tell threads from cores.
    pub core_count: Option<usize>,
    /// Sockets.
    pub socket_count: Option<usize>,
    /// Model name; empty where the kernel gives none (most aarch64 nodes).
    pub model: String,
    /// Features of interest, in a fixed order.
    pub flags: Vec<String>,
    /// Processors that this process may be scheduled on; empty if unknown.
    pub affinity: Vec<usize>,
    /// The list of the cgroup's cpuset, as the kernel writes it.
    pub cpuset: Option<String>,
    /// Limit of CPU time by the cgroup, in thousandths of a processor.
    pub quota_millis: Option<u64>,
}

impl Cpus {
    /// How many threads can really run at once here: at least 1.
    pub fn usable_count(&self) -> usize {
        let affine = if self.affinity.is_empty() {
            self.logical_count
        } else {
            self.affinity.len()
        };
        let quota = self
            .quota_millis
            .and_then(|millis| usize::try_from(millis.div_ceil(1000)).ok())
            .unwrap_or(usize::MAX);
        affine.min(quota).max(1)
    }
}

pub(crate) fn derive(node: &Node) -> Cpus {
    let text = node.text("/proc/cpuinfo").unwrap_or_default();
    let online = node
        .text("/sys/devices/system/cpu/online")
        .map(|list| parse_list(&list).len())
        .filter(|&count| count > 0);
    let mut cpus = parse_cpuinfo(&text);
    if let Some(online) = online {
        cpus.logical_count = online;
    }
    if cpus.core_count.is_none() {
        topology(node, &mut cpus);
    }
    cpus.affinity.clone_from(&node.observed.affinity);
    cpus.cpuset = cgroup::cpuset(node);
    cpus.quota_millis = cgroup::cpu_quota_millis(node);
    cpus
}

/// Counts cores and sockets where `/proc/cpuinfo` has no ids: everywhere but on x86.
fn topology(node: &Node, cpus: &mut Cpus) {
    let mut cores = BTreeSet::new();
    let mut sockets = BTreeSet::new();
    for cpu in 0..cpus.logical_count {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        let id = |name: &str| node.number::<i64>(format!("{folder}/{name}"));
        let (Some(core), Some(socket)) = (id("core_id"), id("physical_package_id")) else {
            return;
        };
        cores.insert((socket, core));
        sockets.insert(socket);
    }
    if !cores.is_empty() {
        cpus.core_count = Some(cores.len());
        cpus.socket_count = Some(sockets.len());
    }
}

fn parse_cpuinfo(text: &str) -> Cpus {
    let mut cpus = Cpus::default();
    let mut cores = BTreeSet::new();
    let mut sockets = BTreeSet::new();
    let mut socket = 0_u64;
    let mut known = BTreeSet::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match name.trim() {
            "processor" if value.parse::<u64>().is_ok() => cpus.logical_count += 1,
            "physical id" => {
                socket = value.parse().unwrap_or(0);
                sockets.insert(socket);
            }
            "core id" => {
                if let Ok(core) = value.parse::<u64>() {
                    cores.insert((socket, core));
                }
            }
            "model name" | "cpu" | "Model" if cpus.model.is_empty() => {
                value.clone_into(&mut cpus.model)
            }
            "flags" | "Features" if known.is_empty() => {
                known.extend(value.split_ascii_whitespace())
            }
            _ => {}
        }
    }
    if !cores.is_empty() && !sockets.is_empty() {
        cpus.core_count = Some(cores.len());
        cpus.socket_count = Some(sockets.len());
    }
    cpus.flags = FLAGS_OF_INTEREST
        .into_iter()
        .filter(|flag| known.contains(flag))
        .map(str::to_owned)
        .collect();
    cpus
}

/// The numbers of a kernel list such as `0-3,8`; nonsense and absurd ranges are left out.
pub(crate) fn parse_list(text: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>())
            && last < 1 << 16
        {
            numbers.extend(first..=last);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn threads_of_one_core_are_one_core() {
        let one = |processor: u32, core: u32| {
            format!(
                "processor\t: {processor}\nphysical id\t: 0\ncore id\t\t: {core}\nmodel name\t: X\nflags\t\t: fpu avx2 sse4_2\n\n"
            )
        };
        let cpus = parse_cpuinfo(&[one(0, 0), one(1, 1), one(2, 0), one(3, 1)].concat());
        assert_eq!(cpus.logical_count, 4);
        assert_eq!((cpus.core_count, cpus.socket_count), (Some(2), Some(1)));
        assert_eq!(cpus.flags, ["sse4_2", "avx2"]);
    }

    #[test]
    fn a_quota_of_one_and_a_half_processors_is_worth_two_threads() {
        let cpus = Cpus {
            logical_count: 64,
            affinity: (0..8).collect(),
            quota_millis: Some(1500),
            ..Cpus::default()
        };
        assert_eq!(cpus.usable_count(), 2);
        assert_eq!(Cpus::default().usable_count(), 1);
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(parse_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert!(parse_list("0-99999999999,x,-").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "((processor|core id|flags|physical id)\t?: ?\\PC{0,20}\n){0,8}") {
            parse_cpuinfo(&text);
            parse_list(&text);
        }
    }
}
