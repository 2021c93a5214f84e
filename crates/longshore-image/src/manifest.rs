//! Manifests, indices and image configurations: what registries and archives say, checked.
//!
//! Everything here comes from outside: sizes are bounded before parsing, nesting by `serde_json`
//! (128 levels), counts after it. Unknown fields are ignored, as the OCI specification wants.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{ErrorKind, ImageError};

/// The largest manifest, index or configuration that is read, in bytes (the distribution
/// specification asks registries for at least this).
pub(crate) const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// More layers than any engine can build (overlayfs stops at 500).
pub(crate) const MAX_LAYERS: usize = 1024;
/// More bytes than any disk holds: sums of stated sizes stay far from the end of the numbers.
const MAX_LAYERS_BYTES: u64 = 1 << 50;
/// More platforms than exist.
const MAX_INDEX_ENTRIES: usize = 4096;

/// The media types of what can stand at a tag, for the `Accept` header.
pub(crate) const ACCEPTED: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// Content by digest, with its size and type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The type as the image's maker wrote it.
    #[serde(default)]
    pub media_type: String,
    /// What the content must hash to.
    pub digest: Digest,
    /// Size of the content in bytes.
    pub size: u64,
    /// Where a foreign layer can be had, when the registry itself has it not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// For an entry of an index: what it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Free text by key; the reference name of a layout is one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What an image runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`.
    #[serde(default)]
    pub os: String,
    /// `amd64`, `arm64`, ... as Go names them.
    #[serde(default)]
    pub architecture: String,
    /// `v8`, ... for the architectures that have variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of this binary.
    pub fn here() -> Platform {
        Platform::of_arch(std::env::consts::ARCH)
    }

    /// Linux on `arch`, in Go's or the kernel's spelling, with a variant after a slash.
    pub fn of_arch(arch: &str) -> Platform {
        let (arch, variant) = match arch.split_once('/') {
            Some((arch, variant)) => (arch, Some(variant.to_owned())),
            None => (arch, None),
        };
        let (arch, implied) = match arch {
            "x86_64" | "x86-64" => ("amd64", None),
            "aarch64" => ("arm64", None),
            "i386" | "i686" | "x86" => ("386", None),
            "armhf" | "armv7l" | "armv7" => ("arm", Some("v7")),
            "powerpc64le" => ("ppc64le", None),
            other => (other, None),
        };
        Platform {
            os: "linux".into(),
            architecture: arch.into(),
            variant: variant.or(implied.map(str::to_owned)),
        }
    }

    /// Reads `os/arch[/variant]`, or an architecture alone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Reference`] for another shape, or another system than Linux.
    pub fn parse(text: &str) -> Result<Platform, ImageError> {
        let refused = |why: &str| {
            ImageError::new(
                ErrorKind::Reference,
                format!("`{text}` is no platform: {why}"),
            )
            .hint("write it as in `linux/arm64`")
        };
        let parts: Vec<&str> = text.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(refused("a part is empty"));
        }
        match parts[..] {
            [arch] => Ok(Platform::of_arch(arch)),
            ["linux", arch] => Ok(Platform::of_arch(arch)),
            ["linux", arch, variant] => Ok(Platform {
                variant: Some(variant.to_owned()),
                ..Platform::of_arch(arch)
            }),
            [_, _] | [_, _, _] => Err(refused("only Linux images can be used")),
            _ => Err(refused("it has too many parts")),
        }
    }

    /// How well `self` serves a wish, `None` where it cannot; more is better.
    fn serves(&self, wanted: &Platform) -> Option<u32> {
        if self.os != wanted.os || self.architecture != wanted.architecture {
            return None;
        }
        let level = |variant: Option<&str>| -> u32 {
            let default = if self.architecture == "arm64" { 8 } else { 0 };
            variant
                .and_then(|variant| variant.strip_prefix('v')?.parse().ok())
                .unwrap_or(default)
        };
        let (own, asked) = (
            level(self.variant.as_deref()),
            level(wanted.variant.as_deref()),
        );
        if self.variant == wanted.variant {
            return Some(1000);
        }
        match wanted.variant {
            // Newer instruction sets may be missing here; older ones run.
            Some(_) => (own <= asked).then_some(own),
            // Without a wish the plainest one runs everywhere, but arm64's v8 is the plain one.
            None => Some(if own <= level(None) {
                500
            } else {
                100 - own.min(99)
            }),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

/// One image: its configuration and its layers, lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// The type of the manifest; OCI allows it to be left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// The image configuration.
    pub config: Descriptor,
    /// The layers, lowest first.
    pub layers: Vec<Descriptor>,
    /// Free text by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Several images under one name, one a platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The images.
    pub manifests: Vec<Descriptor>,
}

/// What a document at a tag turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Manifest(Box<Manifest>),
    /// A choice of images.
    Index(Index),
}

impl Document {
    /// Reads a manifest or an index, told apart by what it holds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for schema 1 and for artefacts that are no container images;
    /// [`ErrorKind::Corrupt`] for what is malformed. `name` is the image in the message.
    pub fn parse(bytes: &[u8], name: &str) -> Result<Document, ImageError> {
        if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(corrupt(name, "manifest", "it is larger than 4 MiB"));
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Probe {
            schema_version: Option<u32>,
            manifests: Option<serde::de::IgnoredAny>,
            #[serde(rename = "fsLayers")]
            fs_layers: Option<serde::de::IgnoredAny>,
        }
        let malformed = |error: serde_json::Error| corrupt(name, "manifest", error);
        let probe: Probe = serde_json::from_slice(bytes).map_err(malformed)?;
        if probe.fs_layers.is_some() || probe.schema_version == Some(1) {
            return Err(ImageError::new(
                ErrorKind::Unsupported,
                format!("{name} has a manifest of Docker's schema 1, which was withdrawn in 2017"),
            )
            .hint("pull it with an old engine once and push it again, or ask its maker to"));
        }
        if probe.manifests.is_some() {
            let index: Index = serde_json::from_slice(bytes).map_err(malformed)?;
            if index.manifests.len() > MAX_INDEX_ENTRIES {
                return Err(corrupt(name, "index", "it has more than 4096 entries"));
            }
            return Ok(Document::Index(index));
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(malformed)?;
        if manifest.layers.len() > MAX_LAYERS {
            return Err(corrupt(name, "manifest", "it has more than 1024 layers"));
        }
        let stated = manifest
            .layers
            .iter()
            .try_fold(0_u64, |sum, layer| sum.checked_add(layer.size));
        if stated.is_none_or(|bytes| bytes > MAX_LAYERS_BYTES) {
            return Err(corrupt(
                name,
                "manifest",
                "it states more than 1 PiB of layers",
            ));
        }
        let config_type = manifest.config.media_type.as_str();
        let is_image = matches!(
            config_type,
            "" | "application/vnd.oci.image.config.v1+json"
                | "application/vnd.docker.container.image.v1+json"
        );
        if !is_image {
            let what = if config_type.contains("sif") {
                "a SIF file in a registry (oras), which comes in a later release".to_owned()
            } else {
                format!("an artefact of type `{config_type}`, not a container image")
            };
            return Err(ImageError::new(
                ErrorKind::Unsupported,
                format!("{name} is {what}"),
            ));
        }
        for layer in &manifest.layers {
            if layer.media_type.contains("encrypted") {
                return Err(ImageError::new(
                    ErrorKind::Unsupported,
                    format!("{name} has encrypted layers (`{}`)", layer.media_type),
                ));
            }
            if !layer.media_type.is_empty() && !layer.media_type.contains("tar") {
                return Err(ImageError::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{name} has a layer of type `{}`, which is no tar",
                        layer.media_type
                    ),
                ));
            }
        }
        Ok(Document::Manifest(Box::new(manifest)))
    }
}

impl Index {
    /// Chooses the image for `wanted`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], naming the platforms that there are.
    pub fn choose(&self, wanted: &Platform, name: &str) -> Result<&Descriptor, ImageError> {
        let best = self
            .manifests
            .iter()
            .filter_map(|entry| Some((entry.platform.as_ref()?.serves(wanted)?, entry)))
            // The first of equals: the order of an index is its maker's preference.
            .fold(None, |best: Option<(u32, &Descriptor)>, entry| match best {
                Some(best) if best.0 >= entry.0 => Some(best),
                _ => Some(entry),
            });
        if let Some((_, entry)) = best {
            return Ok(entry);
        }
        // An index of one image without a platform says nothing that could be wrong.
        if let [only] = &self.manifests[..]
            && only.platform.is_none()
        {
            return Ok(only);
        }
        let there: Vec<String> = self
            .manifests
            .iter()
            .filter_map(|entry| entry.platform.as_ref())
            .filter(|platform| platform.os != "unknown")
            .map(Platform::to_string)
            .collect();
        let found = if there.is_empty() {
            "it names none".to_owned()
        } else {
            format!("it has {}", there.join(", "))
        };
        Err(ImageError::new(
            ErrorKind::NotFound,
            format!("{name} has no image for {wanted}: {found}"),
        )
        .hint("choose another with --platform OS/ARCH"))
    }
}

/// What an image says about running it (the OCI image configuration).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// `NAME=value`, in order.
    pub env: Vec<String>,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, or the program where there is no entry point.
    pub cmd: Vec<String>,
    /// Where the program starts.
    pub working_dir: Option<String>,
    /// The user that the image asks for.
    pub user: Option<String>,
    /// Free text by key.
    pub labels: BTreeMap<String, String>,
    /// Ports as `80/tcp`.
    pub exposed: Vec<String>,
    /// Directories for data.
    pub volumes: Vec<String>,
    /// `amd64`, ...
    pub architecture: String,
    /// `linux`.
    pub os: String,
    /// When the image was made, RFC 3339.
    pub created: Option<String>,
    /// Who made it.
    pub author: Option<String>,
    /// The signal that asks the program to end.
    pub stop_signal: Option<String>,
    /// The steps that made the image.
    pub history: Vec<HistoryStep>,
    /// Digests of the uncompressed layers, lowest first.
    pub diff_ids: Vec<Digest>,
}

/// One step that made an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryStep {
    /// When, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// A remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether the step changed no file and so has no layer.
    #[serde(default)]
    pub empty_layer: bool,
}

impl ImageConfig {
    /// Reads an image configuration as it lies in a registry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] for what is malformed; `name` is the image in the message.
    pub fn parse(bytes: &[u8], name: &str) -> Result<ImageConfig, ImageError> {
        type Keys = BTreeMap<String, serde::de::IgnoredAny>;
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Inner {
            env: Option<Vec<String>>,
            entrypoint: Option<Vec<String>>,
            cmd: Option<Vec<String>>,
            working_dir: Option<String>,
            user: Option<String>,
            labels: Option<BTreeMap<String, String>>,
            exposed_ports: Option<Keys>,
            volumes: Option<Keys>,
            stop_signal: Option<String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct RootFs {
            diff_ids: Option<Vec<Digest>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Outer {
            architecture: Option<String>,
            os: Option<String>,
            created: Option<String>,
            author: Option<String>,
            config: Option<Inner>,
            rootfs: Option<RootFs>,
            history: Option<Vec<HistoryStep>>,
        }
        if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(corrupt(name, "configuration", "it is larger than 4 MiB"));
        }
        let outer: Outer =
            serde_json::from_slice(bytes).map_err(|error| corrupt(name, "configuration", error))?;
        let inner = outer.config.unwrap_or_default();
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let keys = |keys: Option<Keys>| keys.unwrap_or_default().into_keys().collect();
        Ok(ImageConfig {
            env: inner.env.unwrap_or_default(),
            entrypoint: inner.entrypoint.unwrap_or_default(),
            cmd: inner.cmd.unwrap_or_default(),
            working_dir: filled(inner.working_dir),
            user: filled(inner.user),
            labels: inner.labels.unwrap_or_default(),
            exposed: keys(inner.exposed_ports),
            volumes: keys(inner.volumes),
            stop_signal: filled(inner.stop_signal),
            architecture: outer.architecture.unwrap_or_default(),
            os: outer.os.unwrap_or_default(),
            created: filled(outer.created),
            author: filled(outer.author),
            history: outer.history.unwrap_or_default(),
            diff_ids: outer
                .rootfs
                .and_then(|rootfs| rootfs.diff_ids)
                .unwrap_or_default(),
        })
    }
}

/// Malformed content of an image; `why` completes the sentence.
pub(crate) fn corrupt(name: &str, what: &str, why: impl fmt::Display) -> ImageError {
    ImageError::new(
        ErrorKind::Corrupt,
        format!("the {what} of {name} cannot be used: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, os: &str, arch: &str, variant: Option<&str>) -> Descriptor {
        Descriptor {
            media_type: String::new(),
            digest: Digest::of(name.as_bytes()),
            size: 1,
            urls: Vec::new(),
            platform: Some(Platform {
                os: os.into(),
                architecture: arch.into(),
                variant: variant.map(str::to_owned),
            }),
            annotations: BTreeMap::from([("n".into(), name.into())]),
        }
    }

    #[track_caller]
    fn check(wanted: &str, expected: &str) {
        let index = Index {
            manifests: vec![
                entry("attestation", "unknown", "unknown", None),
                entry("windows", "windows", "amd64", None),
                entry("v5", "linux", "arm", Some("v5")),
                entry("v7", "linux", "arm", Some("v7")),
                entry("arm64", "linux", "arm64", Some("v8")),
                entry("amd64", "linux", "amd64", None),
            ],
        };
        let chosen = index
            .choose(&Platform::parse(wanted).expect("a platform"), "img")
            .map(|entry| entry.annotations["n"].clone())
            .unwrap_or_else(|error| error.to_string());
        assert_eq!(chosen, expected);
    }

    #[test]
    fn the_index_serves_each_platform_its_image() {
        check("amd64", "amd64");
        check("x86_64", "amd64");
        check("linux/arm64", "arm64");
        check("linux/arm64/v8", "arm64");
        check("linux/arm/v6", "v5");
        check("linux/arm/v7", "v7");
    }

    #[test]
    fn a_platform_that_is_missing_is_told_with_those_that_are_there() {
        check(
            "linux/s390x",
            "img has no image for linux/s390x: it has windows/amd64, linux/arm/v5, linux/arm/v7, \
             linux/arm64/v8, linux/amd64",
        );
    }

    #[test]
    fn schema_1_is_refused_by_name() {
        let text = br#"{"schemaVersion":1,"name":"x","fsLayers":[]}"#;
        let error = Document::parse(text, "img").expect_err("schema 1");
        assert_eq!(error.kind, ErrorKind::Unsupported);
    }

    #[test]
    fn sizes_that_no_disk_holds_are_refused_before_they_are_summed_up() {
        let digest = Digest::of(b"");
        let text = |sizes: &[u64]| {
            let layers: Vec<String> = sizes
                .iter()
                .map(|size| format!(r#"{{"digest":"{digest}","size":{size}}}"#))
                .collect();
            format!(
                r#"{{"schemaVersion":2,"config":{{"digest":"{digest}","size":2}},"layers":[{}]}}"#,
                layers.join(",")
            )
        };
        assert!(Document::parse(text(&[1 << 40, 1]).as_bytes(), "img").is_ok());
        for sizes in [&[u64::MAX, u64::MAX][..], &[1 << 60]] {
            let error = Document::parse(text(sizes).as_bytes(), "img").expect_err("too large");
            assert_eq!(error.kind, ErrorKind::Corrupt);
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        let text = format!("{{\"schemaVersion\":2,\"x\":{}", "[".repeat(100_000));
        assert!(Document::parse(text.as_bytes(), "img").is_err());
        assert!(ImageConfig::parse(text.as_bytes(), "img").is_err());
    }

    #[test]
    fn a_configuration_with_nulls_is_an_empty_one() {
        let text =
            br#"{"os":"linux","config":{"Env":null,"Cmd":null,"Labels":null},"history":null}"#;
        let config = ImageConfig::parse(text, "img").expect("nulls are common");
        assert!(config.env.is_empty() && config.cmd.is_empty());
    }
}
