//! What users write to name an image, and what it means.
//!
//! A reference is parsed once, at the edge. Docker's short names are filled in here: what users
//! write (`python:3`), the host of the API (`registry-1.docker.io`) and the key in credential files
//! (`https://index.docker.io/v1/`) are three different strings for that one registry.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::digest::Digest;
use crate::error::{ErrorKind, ImageError};

/// An image as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageRef {
    /// An image of a registry.
    Registry(RegistryRef),
    /// An OCI layout directory, with a tag where it holds several images.
    OciDir {
        /// The directory that holds `index.json`.
        path: PathBuf,
        /// The reference name within it.
        tag: Option<String>,
    },
    /// A tar file of an OCI layout.
    OciArchive {
        /// The tar file, compressed or not.
        path: PathBuf,
        /// The reference name within it.
        tag: Option<String>,
    },
    /// What `docker save` writes.
    DockerArchive {
        /// The tar file, compressed or not.
        path: PathBuf,
        /// The repository tag within it.
        tag: Option<String>,
    },
    /// A path: a directory, or a file whose content tells what it is.
    Path(PathBuf),
}

/// An image of a registry: `[host[:port]/]name[:tag][@digest]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryRef {
    /// Host and port as written; `docker.io` where none was.
    pub registry: String,
    /// The repository, with `library/` filled in.
    pub repository: String,
    /// The tag; `latest` where neither tag nor digest was written.
    pub tag: Option<String>,
    /// The digest of the manifest or index; it wins over the tag.
    pub digest: Option<Digest>,
}

/// What a text without a scheme is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    /// A path of this machine.
    Path,
    /// An image of a registry, as `docker pull` reads it.
    Registry,
}

const DOCKER_HUB: &str = "docker.io";

impl ImageRef {
    /// Reads what the user wrote.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Reference`] for a text that names no image, saying which part is wrong.
    pub fn parse(text: &OsStr, bare: Bare) -> Result<ImageRef, ImageError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(refused("", "it is empty"));
        }
        if let Some(rest) = bytes.strip_prefix(b"docker:") {
            let rest = rest.strip_prefix(b"//").unwrap_or(rest);
            return RegistryRef::parse(utf8(text, rest)?).map(ImageRef::Registry);
        }
        if let Some(rest) = bytes.strip_prefix(b"oci-archive:") {
            let (path, tag) = path_and_tag(text, rest)?;
            return Ok(ImageRef::OciArchive { path, tag });
        }
        if let Some(rest) = bytes.strip_prefix(b"docker-archive:") {
            let (path, tag) = path_and_tag(text, rest)?;
            return Ok(ImageRef::DockerArchive { path, tag });
        }
        if let Some(rest) = bytes.strip_prefix(b"oci:") {
            let (path, tag) = path_and_tag(text, rest)?;
            return Ok(ImageRef::OciDir { path, tag });
        }
        if let Some(at) = bytes.windows(3).position(|window| window == b"://") {
            let shown = text.to_string_lossy();
            let scheme = String::from_utf8_lossy(&bytes[..at]);
            return Err(refused(&shown, format!("`{scheme}://` is not handled"))
                .hint("images come from docker://NAME, oci:DIR, oci-archive:FILE, docker-archive:FILE or a directory"));
        }
        match bare {
            Bare::Path => Ok(ImageRef::Path(PathBuf::from(text))),
            Bare::Registry => RegistryRef::parse(utf8(text, bytes)?).map(ImageRef::Registry),
        }
    }

    /// The last part of the name and the tag, as `pull` names its result.
    pub fn short_name(&self) -> String {
        let of_path = |path: &PathBuf| {
            path.file_stem().map_or_else(
                || "image".into(),
                |stem| stem.to_string_lossy().into_owned(),
            )
        };
        match self {
            ImageRef::Registry(image) => {
                let name = image.repository.rsplit('/').next().unwrap_or("image");
                let tag = image
                    .tag
                    .as_deref()
                    .or(image.digest.as_ref().map(Digest::short));
                format!("{name}_{}", tag.unwrap_or("latest"))
            }
            ImageRef::OciDir { path, tag }
            | ImageRef::OciArchive { path, tag }
            | ImageRef::DockerArchive { path, tag } => {
                let tag = tag.as_deref().unwrap_or("latest").replace(['/', ':'], "_");
                format!("{}_{tag}", of_path(path))
            }
            ImageRef::Path(path) => of_path(path),
        }
    }
}

impl RegistryRef {
    /// Reads `[host[:port]/]name[:tag][@digest]`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Reference`], saying which part is wrong.
    pub fn parse(text: &str) -> Result<RegistryRef, ImageError> {
        let refused = |why: &str| refused(text, why);
        if text.is_empty() {
            return Err(refused("the name is missing").hint("write docker://NAME:TAG"));
        }
        if text.len() > 2048 {
            return Err(refused("it is longer than 2048 bytes"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = Digest::parse(digest).map_err(|error| {
                    ImageError::new(
                        ErrorKind::Reference,
                        format!("`{text}` names no image: {error}"),
                    )
                })?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        // Docker's rule: the first part is a host if it looks like one, else part of the name.
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest))
                if first.contains(['.', ':']) || first == "localhost" || has_upper(first) =>
            {
                (first.to_owned(), rest)
            }
            _ => (DOCKER_HUB.to_owned(), rest),
        };
        if !is_host(&registry) {
            return Err(refused(&format!("`{registry}` is no host name")));
        }
        let registry = match registry.as_str() {
            "index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => {
                DOCKER_HUB.to_owned()
            }
            _ => registry,
        };
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (rest, None),
        };
        if name.is_empty() {
            return Err(refused("the name is missing"));
        }
        if has_upper(name) {
            return Err(refused("names in registries have no capital letters"));
        }
        if !name.split('/').all(is_name_part) || name.len() > 255 {
            return Err(refused(&format!("`{name}` is no repository name")));
        }
        if let Some(tag) = tag
            && !is_tag(tag)
        {
            return Err(refused(&format!("`{tag}` is no tag")));
        }
        let repository = if registry == DOCKER_HUB && !name.contains('/') {
            format!("library/{name}")
        } else {
            name.to_owned()
        };
        let tag = match (tag, &digest) {
            (Some(tag), _) => Some(tag.to_owned()),
            (None, None) => Some("latest".to_owned()),
            (None, Some(_)) => None,
        };
        Ok(RegistryRef {
            registry,
            repository,
            tag,
            digest,
        })
    }

    /// What stands in the URL of the manifest: the digest if there is one, else the tag.
    pub fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }

    /// Host and port of the API.
    pub fn api_host(&self) -> &str {
        if self.registry == DOCKER_HUB {
            "registry-1.docker.io"
        } else {
            &self.registry
        }
    }

    /// The keys under which credential files may know this registry, most telling first.
    pub fn credential_keys(&self) -> Vec<String> {
        if self.registry == DOCKER_HUB {
            return [
                "https://index.docker.io/v1/",
                "index.docker.io",
                "docker.io",
                "registry-1.docker.io",
            ]
            .map(str::to_owned)
            .to_vec();
        }
        let host = &self.registry;
        vec![
            host.clone(),
            format!("https://{host}"),
            format!("https://{host}/v1/"),
            format!("https://{host}/v2/"),
            format!("http://{host}"),
        ]
    }

    /// Whether the registry is on this machine, where plain HTTP is no risk.
    pub fn is_loopback(&self) -> bool {
        let host = match self.registry.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => self.registry.split(':').next().unwrap_or(&self.registry),
        };
        host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for RegistryRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, path, tag) = match self {
            ImageRef::Registry(image) => return write!(f, "docker://{image}"),
            ImageRef::Path(path) => return write!(f, "{}", path.display()),
            ImageRef::OciDir { path, tag } => ("oci", path, tag),
            ImageRef::OciArchive { path, tag } => ("oci-archive", path, tag),
            ImageRef::DockerArchive { path, tag } => ("docker-archive", path, tag),
        };
        write!(f, "{scheme}:{}", path.display())?;
        match tag {
            Some(tag) => write!(f, ":{tag}"),
            None => Ok(()),
        }
    }
}

fn refused(text: &str, why: impl fmt::Display) -> ImageError {
    ImageError::new(
        ErrorKind::Reference,
        format!("`{text}` names no image: {why}"),
    )
}

fn utf8<'t>(text: &OsStr, rest: &'t [u8]) -> Result<&'t str, ImageError> {
    std::str::from_utf8(rest).map_err(|_| refused(&text.to_string_lossy(), "it is not valid UTF-8"))
}

/// Splits `PATH[:tag]`. The tag cannot hold a slash before its last colon, so that a path with a
/// colon in a directory name stays whole; `docker-archive:f.tar:repo/name:tag` is split at the
/// first colon after the last part that can be a path.
fn path_and_tag(text: &OsStr, rest: &[u8]) -> Result<(PathBuf, Option<String>), ImageError> {
    let shown = text.to_string_lossy();
    // `oci:///abs` keeps its leading slash.
    let rest = rest.strip_prefix(b"//").unwrap_or(rest);
    if rest.is_empty() {
        return Err(refused(&shown, "the path is missing"));
    }
    let path_of = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    // What exists as it stands has no tag.
    if path_of(rest).exists() {
        return Ok((path_of(rest), None));
    }
    let split = rest
        .iter()
        .enumerate()
        .filter(|&(_, &byte)| byte == b':')
        .map(|(at, _)| at)
        .find(|&at| path_of(&rest[..at]).exists())
        .or_else(|| rest.iter().position(|&byte| byte == b':'));
    match split {
        None => Ok((path_of(rest), None)),
        Some(0) => Err(refused(&shown, "the path is missing")),
        Some(at) => {
            let tag = utf8(text, &rest[at + 1..])?;
            if tag.is_empty() {
                return Err(refused(&shown, "the tag after the colon is missing"));
            }
            Ok((path_of(&rest[..at]), Some(tag.to_owned())))
        }
    }
}

fn has_upper(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) => {
                if host.parse::<std::net::Ipv6Addr>().is_err() {
                    return false;
                }
                (
                    "ipv6",
                    port.strip_prefix(':').or(port.is_empty().then_some("0")),
                )
            }
            None => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("0")),
        },
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    host.split('.').all(is_label) && port.is_some_and(|port| port.parse::<u16>().is_ok())
}

/// distribution/reference: lower-case letters and digits, joined by `.`, `_`, `__` or dashes.
fn is_name_part(part: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().copied().is_some_and(is_alphanumeric)
        && bytes.last().copied().is_some_and(is_alphanumeric)
        && bytes
            .iter()
            .all(|&byte| is_alphanumeric(byte) || matches!(byte, b'.' | b'_' | b'-'))
        && !part.contains("..")
}

fn is_tag(tag: &str) -> bool {
    tag.len() <= 128
        && !tag.starts_with(['.', '-'])
        && !tag.is_empty()
        && tag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match ImageRef::parse(OsStr::new(text), Bare::Path) {
            Ok(image) => image.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn short_names_are_images_of_docker_hub() {
        check(
            "docker://python",
            "docker://docker.io/library/python:latest",
        );
        check("docker:python:3", "docker://docker.io/library/python:3");
        check("docker://user/app:1.0", "docker://docker.io/user/app:1.0");
        check(
            "docker://index.docker.io/python:3",
            "docker://docker.io/library/python:3",
        );
    }

    #[test]
    fn hosts_are_told_from_names() {
        check("docker://localhost/a", "docker://localhost/a:latest");
        check(
            "docker://127.0.0.1:5000/lab/py:1",
            "docker://127.0.0.1:5000/lab/py:1",
        );
        check("docker://[::1]:5000/a:x", "docker://[::1]:5000/a:x");
        check("docker://quay.io/a/b/c", "docker://quay.io/a/b/c:latest");
    }

    #[test]
    fn a_digest_stands_beside_a_tag() {
        let digest = Digest::of(b"").to_string();
        check(
            &format!("docker://q.io/a@{digest}"),
            &format!("docker://q.io/a@{digest}"),
        );
        check(
            &format!("docker://q.io/a:1@{digest}"),
            &format!("docker://q.io/a:1@{digest}"),
        );
    }

    #[test]
    fn a_wrong_reference_says_what_is_wrong() {
        check("docker://", "`` names no image: the name is missing");
        check(
            "docker://Python",
            "`Python` names no image: names in registries have no capital letters",
        );
        check(
            "docker://a:b:c",
            "`a:b:c` names no image: `a:b` is no repository name",
        );
        check("docker://a:-x", "`a:-x` names no image: `-x` is no tag");
        check(
            "docker://a/../b",
            "`a/../b` names no image: `a/../b` is no repository name",
        );
        check(
            "library://x/y",
            "`library://x/y` names no image: `library://` is not handled",
        );
        check("oci:", "`oci:` names no image: the path is missing");
    }

    #[test]
    fn paths_carry_tags() {
        check("oci:some/dir:tag", "oci:some/dir:tag");
        check(
            "docker-archive:f.tar:repo/name:1",
            "docker-archive:f.tar:repo/name:1",
        );
        check("oci-archive:/nowhere/f.tar", "oci-archive:/nowhere/f.tar");
        check("some/dir", "some/dir");
    }

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        let loopback = |text: &str| RegistryRef::parse(text).expect("a reference").is_loopback();
        assert!(loopback("127.0.0.1:5000/a"));
        assert!(loopback("localhost:5000/a"));
        assert!(loopback("[::1]:5000/a"));
        assert!(!loopback("10.0.0.1:5000/a"));
        assert!(!loopback("localhost.example.org/a"));
    }
}
