//! Names of content: `sha256:` and 64 hexadecimal digits.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A checked digest; only SHA-256 is in use by registries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// The text is no digest, or of an algorithm that is not handled.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no SHA-256 digest (`sha256:` and 64 hexadecimal digits)")]
pub struct NotADigest(String);

impl Digest {
    /// Takes `sha256:<64 lower-case hexadecimal digits>`.
    ///
    /// # Errors
    ///
    /// [`NotADigest`] for everything else, also for other algorithms: the text becomes a file name.
    pub fn parse(text: &str) -> Result<Digest, NotADigest> {
        let refused = || NotADigest(text.chars().take(100).collect());
        let hex = text.strip_prefix("sha256:").ok_or_else(refused)?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() == 64 && hex.bytes().all(is_hex) {
            Ok(Digest(text.to_owned()))
        } else {
            Err(refused())
        }
    }

    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 64 digits.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// The first 12 digits, as people write them.
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = NotADigest;

    fn try_from(text: String) -> Result<Digest, NotADigest> {
        Digest::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}

/// A digest in the making.
#[derive(Clone)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn new() -> Hasher {
        Hasher(Sha256::new())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        let mut text = String::with_capacity(71);
        text.push_str("sha256:");
        for byte in self.0.finalize() {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(nibble.into(), 16).expect("a nibble is a digit"));
            }
        }
        Digest(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        assert_eq!(
            Digest::of(b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_digest_that_would_be_a_path_is_refused() {
        assert!(Digest::parse("sha256:../../etc/passwd").is_err());
        assert!(Digest::parse(&format!("sha256:{}", "A".repeat(64))).is_err());
        assert!(Digest::parse(&format!("sha512:{}", "a".repeat(128))).is_err());
    }
}
