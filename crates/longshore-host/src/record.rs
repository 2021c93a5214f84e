//! Records a node as a fixture: just what the probe looked at, without names of people or machines.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

use crate::host::Host;
use crate::mounts;
use crate::node::{ENV_FILE, Node, OBSERVED_FILE, ProbeError};

/// The expected `Host` beside a recorded node.
pub(crate) const HOST_FILE: &str = "host.json";

/// A node could not be recorded.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The folder could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was written cannot be read back.
    #[error("the recording cannot be read back")]
    ReadBack(#[from] ProbeError),
}

impl Host {
    /// Writes everything that was read of `node` into `folder`, with the expected `host.json`.
    ///
    /// Only variables that the probe asks for are kept. The names of the user and the node, network
    /// addresses, unique ids and control group names are replaced; mounts that have no bearing are
    /// left out. Look over the result before publishing it all the same.
    ///
    /// # Errors
    ///
    /// [`RecordError`] where the folder cannot be written or its content read back.
    pub fn record(node: &Node, folder: &Path) -> Result<Host, RecordError> {
        // Deriving notes down what is asked.
        let _ = Host::of(node);
        write_recording(node, folder)?;
        let host = Host::from_recorded(folder)?;
        host.bless(folder)?;
        Ok(host)
    }

    /// Writes this as the expected `host.json` of a recorded node.
    ///
    /// # Errors
    ///
    /// [`RecordError::Write`] where the folder cannot be written.
    pub fn bless(&self, folder: &Path) -> Result<(), RecordError> {
        write(&folder.join(HOST_FILE), &pretty(self))
    }
}

fn pretty(value: &impl serde::Serialize) -> String {
    let mut text =
        serde_json::to_string_pretty(value).expect("keys are strings and no value fails");
    text.push('\n');
    text
}

fn write(path: &Path, text: &str) -> Result<(), RecordError> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text))
        .map_err(|source| RecordError::Write {
            path: path.to_owned(),
            source,
        })
}

fn write_recording(node: &Node, folder: &Path) -> Result<(), RecordError> {
    let asked = node.asked.borrow();
    let scrub = Scrub::of(node, asked.texts.get(Path::new("/proc/self/cgroup")));
    for (path, text) in &asked.texts {
        let place = folder.join(relative(&scrub.group_path(path)));
        write(
            &place,
            &scrub.text(
                path,
                text,
                &node.observed.statfs.keys().cloned().collect::<Vec<_>>(),
            ),
        )?;
    }
    for (parent, names) in &asked.names {
        for name in names {
            let place = folder.join(relative(&parent.join(name)));
            // What was listed but not read is there to be listed again.
            if !place.exists() {
                write(&place, "")?;
            }
        }
    }
    let env: String = asked
        .env
        .iter()
        .filter(|(_, value)| !value.contains('\n'))
        .map(|(name, value)| format!("{name}={}\n", scrub.words(&addresses(value))))
        .collect();
    write(&folder.join(ENV_FILE), &env)?;

    let mut observed = node.observed.clone();
    observed.user = scrub.words(&observed.user);
    observed.home = scrub.path(&observed.home);
    observed.cwd = scrub.path(&observed.cwd);
    observed.program = PathBuf::from("/usr/local/bin/longshore");
    for found in observed.programs.values_mut() {
        found.path = scrub.path(&found.path);
        found.real = scrub.path(&found.real);
    }
    for (_, path) in &mut observed.libraries {
        *path = scrub.path(path);
    }
    observed.statfs = std::mem::take(&mut observed.statfs)
        .into_iter()
        .map(|(path, mut statfs)| {
            statfs.asked = scrub.path(&statfs.asked);
            (scrub.path(&path), statfs)
        })
        .collect();
    write(&folder.join(OBSERVED_FILE), &pretty(&observed))
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// What is replaced by what.
struct Scrub {
    user: String,
    host: String,
    groups: BTreeMap<String, String>,
}

impl Scrub {
    fn of(node: &Node, cgroup: Option<&String>) -> Scrub {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut groups = BTreeMap::new();
        let paths = cgroup
            .into_iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| line.splitn(3, ':').nth(2));
        for part in paths.flat_map(|path| path.split('/')) {
            if !part.is_empty() && part != ".." {
                let next = format!("group{}", groups.len() + 1);
                groups.entry(part.to_owned()).or_insert(next);
            }
        }
        Scrub {
            user: node.observed.user.clone(),
            host: host.trim().to_owned(),
            groups,
        }
    }

    /// Replaces the names of user and node where no letter or digit goes on.
    fn words(&self, text: &str) -> String {
        let text = match self.user.as_str() {
            "root" | "" => text.to_owned(),
            user => replace_word(text, user, "user"),
        };
        match self.host.as_str() {
            "" => text,
            host => replace_word(&text, host, "node"),
        }
    }

    fn path(&self, path: &Path) -> PathBuf {
        PathBuf::from(self.words(&path.to_string_lossy()))
    }

    /// Renames control groups in the path of a file of theirs.
    fn group_path(&self, path: &Path) -> PathBuf {
        if !path.starts_with("/sys/fs/cgroup") {
            return path.to_owned();
        }
        path.components()
            .map(|part| match part {
                Component::Normal(name) => {
                    let name = name.to_string_lossy();
                    PathBuf::from(
                        self.groups
                            .get(name.as_ref())
                            .map_or(name.as_ref(), String::as_str),
                    )
                }
                other => PathBuf::from(other.as_os_str()),
            })
            .collect()
    }

    fn group_words(&self, text: &str) -> String {
        text.split('/')
            .map(|part| self.groups.get(part).map_or(part, String::as_str))
            .collect::<Vec<_>>()
            .join("/")
    }

    fn text(&self, path: &Path, text: &str, places: &[PathBuf]) -> String {
        let whole = path.to_string_lossy();
        match whole.as_ref() {
            "/proc/self/cgroup" => text
                .lines()
                .map(|line| format!("{}\n", self.group_words(line)))
                .collect(),
            "/proc/self/mountinfo" => self.mounts(text, places),
            "/etc/subuid" | "/etc/subgid" => text
                .lines()
                .filter(|line| line.split(':').next() == Some(self.user.as_str()))
                .map(|line| format!("{}\n", self.words(line)))
                .collect(),
            _ if whole.starts_with("/sys/class/cxi") || whole.starts_with("/tools") => {
                self.words(text)
            }
            _ => unique_ids(text),
        }
    }

    /// Keeps the mounts that can matter: of the kernel's file systems, and those below which the
    /// places of interest lie.
    fn mounts(&self, text: &str, places: &[PathBuf]) -> String {
        let kept = |line: &&str| {
            mounts::parse(line).first().is_some_and(|mount| {
                ["/proc", "/sys", "/dev"]
                    .iter()
                    .any(|folder| mount.point.starts_with(folder))
                    || places.iter().any(|place| place.starts_with(&mount.point))
            })
        };
        text.lines()
            .filter(kept)
            .map(|line| format!("{}\n", self.words(&addresses(&self.group_words(line)))))
            .collect()
    }
}

fn replace_word(text: &str, word: &str, replacement: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, tail) = rest.split_at(at);
        let after = &tail[word.len()..];
        result.push_str(before);
        let goes_on =
            result.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        result.push_str(if goes_on { word } else { replacement });
        rest = after;
    }
    result.push_str(rest);
    result
}

/// Replaces network addresses.
fn addresses(text: &str) -> String {
    let replaced = replace_tokens(
        text,
        |letter| letter.is_ascii_hexdigit() || letter == ':' || letter == '.',
        |token| {
            // A lone `::` or a number is no secret.
            (token.len() > 3 && token.parse::<Ipv6Addr>().is_ok()).then_some("2001:db8::1")
        },
    );
    replace_tokens(
        &replaced,
        |letter| letter.is_ascii_digit() || letter == '.',
        |token| token.parse::<Ipv4Addr>().is_ok().then_some("192.0.2.1"),
    )
}

/// Replaces ids of the form 8-4-4-4-12, which name one device in the world.
fn unique_ids(text: &str) -> String {
    const ZEROS: &str = "00000000-0000-0000-0000-000000000000";
    let mut text = text.to_owned();
    let is_id = |piece: &[u8]| {
        piece.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut at = 0;
    while at + ZEROS.len() <= text.len() {
        if is_id(&text.as_bytes()[at..at + ZEROS.len()]) {
            // Only ASCII was found there, so both ends are boundaries of characters.
            text.replace_range(at..at + ZEROS.len(), ZEROS);
            at += ZEROS.len();
        } else {
            at += 1;
        }
    }
    text
}

fn replace_tokens(
    text: &str,
    belongs: impl Fn(char) -> bool,
    replacement: impl Fn(&str) -> Option<&'static str>,
) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter| !belongs(letter)).unwrap_or(rest.len());
        let (token, tail) = rest.split_at(end);
        result.push_str(replacement(token).unwrap_or(token));
        let next = tail.find(&belongs).unwrap_or(tail.len());
        result.push_str(&tail[..next]);
        rest = &tail[next..];
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_and_versions_stay() {
        assert_eq!(addresses("tcp4://10.1.2.3:4711"), "tcp4://192.0.2.1:4711");
        assert_eq!(
            addresses("[fe80::1ff:2] 22:0 1.2.3"),
            "[2001:db8::1] 22:0 1.2.3"
        );
        assert_eq!(
            addresses("addr=10.0.0.1,vers=4.2"),
            "addr=192.0.2.1,vers=4.2"
        );
    }

    #[test]
    fn the_id_of_one_device_is_replaced() {
        let text = "GPU UUID: \t GPU-1a2b3c4d-1111-2222-3333-1234567890ab\n";
        assert_eq!(
            unique_ids(text),
            "GPU UUID: \t GPU-00000000-0000-0000-0000-000000000000\n"
        );
    }

    #[test]
    fn names_are_replaced_as_words_only() {
        let scrub = Scrub {
            user: "al".to_owned(),
            host: "vm".to_owned(),
            groups: BTreeMap::new(),
        };
        assert_eq!(
            scrub.words("/home/al/final vm vmx"),
            "/home/user/final node vmx"
        );
        assert_eq!(scrub.words("prterun-vm-4711@1"), "prterun-node-4711@1");
    }
}
