//! Accelerators, their drivers, and the CDI specifications that describe them to containers.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::node::Node;

/// Who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuVendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
}

impl GpuVendor {
    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            GpuVendor::Nvidia => "NVIDIA",
            GpuVendor::Amd => "AMD",
            GpuVendor::Intel => "Intel",
        }
    }
}

/// One accelerator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Who made it.
    pub vendor: GpuVendor,
    /// Model, where the driver tells it.
    pub model: Option<String>,
    /// Address on the PCI bus, or the render node.
    pub address: String,
    /// The device node that programs open, if it is there.
    pub device: Option<PathBuf>,
}

/// All that concerns accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpus {
    /// The accelerators.
    pub devices: Vec<Gpu>,
    /// Version of NVIDIA's kernel driver.
    pub nvidia_driver: Option<String>,
    /// Version of AMD's kernel driver; `None` for the one that comes with the kernel.
    pub amd_driver: Option<String>,
    /// Driver libraries that the loader's cache names.
    pub libraries: Vec<PathBuf>,
    /// CDI specifications.
    pub cdi_specs: Vec<PathBuf>,
    /// The kinds that those describe, as `nvidia.com/gpu`.
    pub cdi_kinds: Vec<String>,
}

pub(crate) fn is_driver_library(soname: &str) -> bool {
    [
        "libcuda.so.1",
        "libnvidia-ml.so",
        "libamdhip64.so",
        "libhsa-runtime64.so",
        "libze_loader.so",
        "libze_intel_gpu.so",
    ]
    .iter()
    .any(|name| soname.starts_with(name))
}

pub(crate) fn derive(node: &Node) -> Gpus {
    let mut gpus = Gpus {
        nvidia_driver: node
            .text("/proc/driver/nvidia/version")
            .and_then(|text| nvidia_version(&text)),
        amd_driver: node.text("/sys/module/amdgpu/version"),
        libraries: node
            .observed
            .libraries
            .iter()
            .filter(|(soname, _)| is_driver_library(soname))
            .map(|(_, path)| path.clone())
            .collect(),
        ..Gpus::default()
    };
    nvidia(node, &mut gpus.devices);
    amd(node, &mut gpus.devices);
    intel(node, &mut gpus.devices);
    cdi(node, &mut gpus);
    gpus
}

fn existing(node: &Node, path: String) -> Option<PathBuf> {
    let path = PathBuf::from(path);
    node.observed.devices.contains_key(&path).then_some(path)
}

fn nvidia(node: &Node, devices: &mut Vec<Gpu>) {
    let folder = "/proc/driver/nvidia/gpus";
    for address in node.names(folder, |_| true) {
        let text = node
            .text(format!("{folder}/{address}/information"))
            .unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches(':').trim().to_owned())
        };
        devices.push(Gpu {
            vendor: GpuVendor::Nvidia,
            model: field("Model"),
            device: field("Device Minor")
                .and_then(|minor| existing(node, format!("/dev/nvidia{minor}"))),
            address,
        });
    }
}

/// The version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan ...`.
fn nvidia_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
    line.split_ascii_whitespace()
        .find(|word| {
            word.contains('.')
                && word
                    .split('.')
                    .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        })
        .map(str::to_owned)
}

fn amd(node: &Node, devices: &mut Vec<Gpu>) {
    let folder = "/sys/class/kfd/kfd/topology/nodes";
    for number in node.names(folder, |name| name.parse::<u32>().is_ok()) {
        let properties = node
            .text(format!("{folder}/{number}/properties"))
            .unwrap_or_default();
        let field = |name: &str| {
            properties
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        // The processors are nodes of this topology too; they have no SIMD units.
        if field("simd_count ").unwrap_or(0) == 0 {
            continue;
        }
        let target = field("gfx_target_version ").filter(|&target| target > 0);
        let render = field("drm_render_minor ").unwrap_or(0);
        devices.push(Gpu {
            vendor: GpuVendor::Amd,
            // 90402 is gfx942: major, minor and stepping in decimal, the name in hexadecimal.
            model: target.map(|target| {
                format!(
                    "gfx{}{:x}{:x}",
                    target / 10_000,
                    target / 100 % 100,
                    target % 100
                )
            }),
            device: existing(node, format!("/dev/dri/renderD{render}")),
            address: format!("kfd node {number}"),
        });
    }
}

fn intel(node: &Node, devices: &mut Vec<Gpu>) {
    for render in node.names("/sys/class/drm", |name| name.starts_with("renderD")) {
        let folder = format!("/sys/class/drm/{render}/device");
        if node.text(format!("{folder}/vendor")).as_deref() == Some("0x8086") {
            devices.push(Gpu {
                vendor: GpuVendor::Intel,
                model: node.text(format!("{folder}/device")),
                device: existing(node, format!("/dev/dri/{render}")),
                address: render,
            });
        }
    }
}

/// Specifications lie in two folders (CDI specification, "CDI JSON specification", v1.1.0).
fn cdi(node: &Node, gpus: &mut Gpus) {
    for folder in ["/etc/cdi", "/var/run/cdi"] {
        let names = node.names(folder, |name| {
            let kind = Path::new(name).extension().and_then(|kind| kind.to_str());
            matches!(kind, Some("json" | "yaml" | "yml"))
        });
        for name in names {
            let path = Path::new(folder).join(name);
            if let Some(kind) = node.text(&path).as_deref().and_then(cdi_kind)
                && !gpus.cdi_kinds.contains(&kind)
            {
                gpus.cdi_kinds.push(kind);
            }
            gpus.cdi_specs.push(path);
        }
    }
}

/// The value of the top-level `kind`, in JSON or YAML, found without a parser of either.
fn cdi_kind(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("kind")?;
    let value = rest
        .trim_start_matches(['"', '\''])
        .trim_start()
        .strip_prefix(':')?;
    let end = value.find(['\n', ',', '}']).unwrap_or(value.len());
    let kind = value[..end].trim().trim_matches(['"', '\'']);
    kind.contains('/').then(|| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_version_is_found_in_both_wordings() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 12:00:00 UTC 2025\nGCC version: 12.3.0\n";
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n";
        assert_eq!(nvidia_version(closed).as_deref(), Some("570.86.15"));
        assert_eq!(nvidia_version(open).as_deref(), Some("580.95.05"));
    }

    #[test]
    fn the_kind_of_a_specification_is_found_in_json_and_yaml() {
        let json = r#"{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[]}"#;
        let yaml = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\n";
        assert_eq!(cdi_kind(json).as_deref(), Some("nvidia.com/gpu"));
        assert_eq!(cdi_kind(yaml).as_deref(), Some("nvidia.com/gpu"));
        assert_eq!(cdi_kind("kind"), None);
    }
}
