//! How much memory there is, and how much of it this process may use.

use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::node::{Node, Observed};

/// Memory of the node; each figure is `None` where the kernel did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Memory that the kernel manages.
    pub total_bytes: Option<u64>,
    /// Memory that could be had without swapping (`MemAvailable`, Linux 3.14).
    pub available_bytes: Option<u64>,
    /// The tightest limit of the cgroups that this process is in.
    pub limit_bytes: Option<u64>,
}

/// The memory that this process may use of the node's, in bytes: the tightest limit of its cgroups,
/// where there is one. Reads some small files.
pub fn memory_limit() -> Option<u64> {
    derive(&Node::unobserved(Observed::default())).limit_bytes
}

pub(crate) fn derive(node: &Node) -> Memory {
    let text = node.text("/proc/meminfo").unwrap_or_default();
    let total_bytes = field(&text, "MemTotal");
    Memory {
        total_bytes,
        available_bytes: field(&text, "MemAvailable"),
        // Version 1 writes "no limit" as a number near 2^63.
        limit_bytes: cgroup::memory_limit(node)
            .filter(|&limit| limit < total_bytes.unwrap_or(u64::MAX >> 1)),
    }
}

/// A field of `/proc/meminfo`, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = line.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => number.checked_mul(1024),
        _ => Some(number),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kilobytes_are_given_as_bytes() {
        let text = "MemTotal:       24684084 kB\nMemFree: 1 kB\nHugePages_Total:       4\n";
        assert_eq!(field(text, "MemTotal"), Some(24_684_084 * 1024));
        assert_eq!(field(text, "HugePages_Total"), Some(4));
        assert_eq!(field(text, "MemAvailable"), None);
        assert_eq!(field("MemTotal: 18446744073709551615 kB", "MemTotal"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(MemTotal)?:? ?[0-9]{0,30} ?k?B?\\PC*") {
            field(&text, "MemTotal");
        }
    }
}
