//! Which Linux distribution this is: os-release(5).

use serde::{Deserialize, Serialize};

use crate::node::Node;

/// What os-release(5) says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Lower-case name, as `debian` or `rhel`.
    pub id: String,
    /// Version, as `12`; empty for rolling distributions.
    pub version: String,
    /// For people: `Debian GNU/Linux 12 (bookworm)`.
    pub name: String,
}

pub(crate) fn derive(node: &Node) -> Option<Distribution> {
    let text = node
        .text("/etc/os-release")
        .or_else(|| node.text("/usr/lib/os-release"))?;
    let field = |name: &str| -> Option<String> {
        let value = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim_matches(['"', '\'']).to_owned())
    };
    let id = field("ID").unwrap_or_else(|| "linux".to_owned());
    Some(Distribution {
        version: field("VERSION_ID").unwrap_or_default(),
        name: field("PRETTY_NAME").unwrap_or_else(|| id.clone()),
        id,
    })
}
