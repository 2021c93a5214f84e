//! High-speed networks and network devices.

use serde::{Deserialize, Serialize};

use crate::node::Node;

/// Which kind of fabric a device belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FabricKind {
    /// InfiniBand.
    Infiniband,
    /// RDMA over Ethernet.
    Roce,
    /// Intel or Cornelis Omni-Path.
    OmniPath,
    /// HPE Slingshot (`cxi`).
    Slingshot,
    /// Amazon's Elastic Fabric Adapter.
    Efa,
}

impl FabricKind {
    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            FabricKind::Infiniband => "InfiniBand",
            FabricKind::Roce => "RoCE",
            FabricKind::OmniPath => "Omni-Path",
            FabricKind::Slingshot => "Slingshot",
            FabricKind::Efa => "EFA",
        }
    }
}

/// One port of a fabric device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    /// Kind of network.
    pub kind: FabricKind,
    /// Device, as `mlx5_0`.
    pub device: String,
    /// Port number, where a device has several.
    pub port: Option<u32>,
    /// Model, as `MT4129`, where the driver tells it.
    pub model: Option<String>,
    /// Whether the link is up; `None` where the driver does not say.
    pub up: Option<bool>,
    /// Rate as the driver words it, as `400 Gb/sec (4X NDR)`.
    pub rate: Option<String>,
    /// Whether a device node is there for programs to open.
    pub usable: bool,
}

/// A network device of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetDevice {
    /// Name, as `eth0`.
    pub name: String,
    /// Whether it carries traffic; `None` where the kernel does not know.
    pub up: Option<bool>,
    /// Speed, where the driver knows it: virtual devices do not.
    pub speed_mbit_per_s: Option<u64>,
    /// Largest packet.
    pub mtu_bytes: Option<u32>,
}

/// Amazon's vendor number on the PCI bus.
const AMAZON: &str = "0x1d0f";

pub(crate) fn is_fabric_library(soname: &str) -> bool {
    [
        "libfabric.so",
        "libucp.so",
        "libibverbs.so",
        "librdmacm.so",
        "libcxi.so",
        "libpsm2.so",
        "libefa.so",
        "libpmix.so",
        "libpmi.so",
        "libpmi2.so",
        "libxpmem.so",
    ]
    .iter()
    .any(|name| soname.starts_with(name))
}

pub(crate) fn derive(node: &Node) -> Vec<Fabric> {
    let mut fabrics = Vec::new();
    for device in node.names("/sys/class/infiniband", |_| true) {
        verbs_ports(node, &device, &mut fabrics);
    }
    for device in node.names("/sys/class/cxi", |name| name.starts_with("cxi")) {
        let port = format!("/sys/class/cxi/{device}/device/port");
        let link = node
            .text(format!("{port}/link"))
            .or_else(|| node.text(format!("{port}/link_state")));
        fabrics.push(Fabric {
            kind: FabricKind::Slingshot,
            port: None,
            model: None,
            up: link.map(|link| matches!(link.as_str(), "up" | "1")),
            rate: node.text(format!("{port}/speed")),
            usable: has_device(node, &format!("/dev/{device}")),
            device,
        });
    }
    fabrics
}

fn verbs_ports(node: &Node, device: &str, fabrics: &mut Vec<Fabric>) {
    let folder = format!("/sys/class/infiniband/{device}");
    let vendor = node.text(format!("{folder}/device/vendor"));
    let model = node
        .text(format!("{folder}/hca_type"))
        .or_else(|| node.text(format!("{folder}/board_id")));
    let ports = node.names(format!("{folder}/ports"), |name| {
        name.parse::<u32>().is_ok()
    });
    for port in &ports {
        let port_folder = format!("{folder}/ports/{port}");
        let layer = node.text(format!("{port_folder}/link_layer"));
        let kind = if device.starts_with("hfi1_") || device.starts_with("opa") {
            FabricKind::OmniPath
        } else if device.starts_with("efa_") || vendor.as_deref() == Some(AMAZON) {
            FabricKind::Efa
        } else if layer.as_deref() == Some("Ethernet") {
            FabricKind::Roce
        } else {
            FabricKind::Infiniband
        };
        let usable = if kind == FabricKind::OmniPath {
            has_device(node, &format!("/dev/{device}"))
        } else {
            node.observed
                .devices
                .keys()
                .any(|path| path.to_string_lossy().starts_with("/dev/infiniband/uverbs"))
        };
        fabrics.push(Fabric {
            kind,
            device: device.to_owned(),
            port: port.parse().ok(),
            model: model.clone(),
            // "4: ACTIVE"
            up: node
                .text(format!("{port_folder}/state"))
                .map(|state| state.contains("ACTIVE")),
            rate: node.text(format!("{port_folder}/rate")),
            usable,
        });
    }
}

fn has_device(node: &Node, path: &str) -> bool {
    node.observed
        .devices
        .contains_key(std::path::Path::new(path))
}

pub(crate) fn net_devices(node: &Node) -> Vec<NetDevice> {
    // Hundreds of veth pairs of a container host tell nothing.
    let wanted = |name: &str| {
        ![
            "lo",
            "veth",
            "docker",
            "br-",
            "virbr",
            "cali",
            "ifb",
            "dummy",
            "tun",
            "tap",
            "bonding_masters",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
    };
    node.names("/sys/class/net", wanted)
        .into_iter()
        .map(|name| {
            let folder = format!("/sys/class/net/{name}");
            NetDevice {
                up: match node.text(format!("{folder}/operstate")).as_deref() {
                    Some("up") => Some(true),
                    Some("down" | "lowerlayerdown" | "notpresent") => Some(false),
                    _ => None,
                },
                // -1 where the driver does not know.
                speed_mbit_per_s: node.number(format!("{folder}/speed")),
                mtu_bytes: node.number(format!("{folder}/mtu")),
                name,
            }
        })
        .collect()
}
