//! Who we are to a registry: explicit options, then the files that other tools wrote.
//!
//! Order: options and `*_DOCKER_USERNAME`/`PASSWORD` variables; the file of `--authfile` or
//! `APPTAINER_AUTH_FILE`; `REGISTRY_AUTH_FILE`; `~/.apptainer/docker-config.json`; podman's
//! `$XDG_RUNTIME_DIR/containers/auth.json`; `$DOCKER_CONFIG/config.json` or `~/.docker/config.json`.
//! In a file `credHelpers`, `auths` and `credsStore` are asked in this order, as Docker does. A secret
//! is never put into an argument list or a message.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use longshore_host::Session;
use serde::Deserialize;

use crate::error::{ErrorKind, ImageError};
use crate::reference::RegistryRef;

/// Configuration files of registries are small.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// What proves to a registry who we are.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A name and a password or access token.
    Password {
        /// The login name.
        user: String,
        /// The secret.
        password: String,
    },
    /// A refresh token, exchanged for access tokens at the registry's token server.
    IdentityToken(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credentials::Password { user, .. } => write!(f, "Password({user}, ...)"),
            Credentials::IdentityToken(_) => f.write_str("IdentityToken(...)"),
        }
    }
}

/// Where the credentials came from, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The credentials.
    pub credentials: Credentials,
    /// The variable or file that held them.
    pub origin: String,
}

/// Finds the credentials for `image`; `None` is an anonymous visit.
///
/// # Errors
///
/// A file that was named explicitly must be readable; one that is found at its usual place must be
/// well-formed; a helper that fails otherwise than by knowing nothing is an error.
pub(crate) fn find(
    session: &Session,
    auth_file: Option<&Path>,
    image: &RegistryRef,
) -> Result<Option<Found>, ImageError> {
    if let Some(found) = from_variables(session)? {
        return Ok(Some(found));
    }
    let explicit = auth_file.map(Path::to_owned).or_else(|| {
        [
            "APPTAINER_AUTH_FILE",
            "SINGULARITY_AUTH_FILE",
            "REGISTRY_AUTH_FILE",
        ]
        .iter()
        .find_map(|name| set(session, name))
        .map(PathBuf::from)
    });
    if let Some(path) = explicit {
        let text = std::fs::File::open(&path)
            .and_then(read_bounded)
            .map_err(|error| ImageError::io("read the credentials in", &path, error))?;
        return from_config(session, &path, &text, image);
    }
    for path in usual_files(session) {
        let Ok(text) = std::fs::File::open(&path).and_then(read_bounded) else {
            continue;
        };
        if let Some(found) = from_config(session, &path, &text, image)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn set<'s>(session: &'s Session, name: &str) -> Option<&'s std::ffi::OsStr> {
    session.var(name).filter(|value| !value.is_empty())
}

fn from_variables(session: &Session) -> Result<Option<Found>, ImageError> {
    for prefix in ["APPTAINER_DOCKER", "SINGULARITY_DOCKER", "DOCKER"] {
        let (user, secret) = (format!("{prefix}_USERNAME"), format!("{prefix}_PASSWORD"));
        let text = |name: &str| -> Result<Option<String>, ImageError> {
            set(session, name)
                .map(|value| {
                    value.to_str().map(str::to_owned).ok_or_else(|| {
                        ImageError::new(ErrorKind::Reference, format!("{name} is not valid UTF-8"))
                    })
                })
                .transpose()
        };
        if let (Some(name), Some(password)) = (text(&user)?, text(&secret)?) {
            return Ok(Some(Found {
                credentials: Credentials::Password {
                    user: name,
                    password,
                },
                origin: user,
            }));
        }
    }
    Ok(None)
}

fn usual_files(session: &Session) -> Vec<PathBuf> {
    let apptainer = set(session, "APPTAINER_CONFIGDIR")
        .map_or_else(|| session.home.join(".apptainer"), PathBuf::from);
    let mut files = vec![
        apptainer.join("docker-config.json"),
        session.home.join(".singularity/docker-config.json"),
    ];
    if let Some(runtime) = set(session, "XDG_RUNTIME_DIR") {
        files.push(Path::new(runtime).join("containers/auth.json"));
    }
    files.push(session.home.join(".config/containers/auth.json"));
    let docker =
        set(session, "DOCKER_CONFIG").map_or_else(|| session.home.join(".docker"), PathBuf::from);
    files.push(docker.join("config.json"));
    files
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigFile {
    auths: BTreeMap<String, AuthEntry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

pub(crate) fn from_config(
    session: &Session,
    path: &Path,
    text: &[u8],
    image: &RegistryRef,
) -> Result<Option<Found>, ImageError> {
    let malformed = |why: &dyn fmt::Display| {
        ImageError::new(
            ErrorKind::Corrupt,
            format!(
                "the credentials in {} cannot be used: {why}",
                path.display()
            ),
        )
        .hint("correct the file, or name another one with --authfile")
    };
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let config: ConfigFile = serde_json::from_slice(text).map_err(|error| malformed(&error))?;
    let mut keys = image.credential_keys();
    // podman keeps credentials for a part of a registry under `host/path`, most telling first.
    let mut scope = format!("{}/{}", image.registry, image.repository);
    let mut scopes = Vec::new();
    while scope.len() > image.registry.len() {
        scopes.push(scope.clone());
        match scope.rfind('/') {
            Some(slash) => scope.truncate(slash),
            None => break,
        }
    }
    scopes.append(&mut keys);
    let keys = scopes;
    let origin = path.display().to_string();
    for key in &keys {
        if let Some(helper) = config.cred_helpers.get(key) {
            return Ok(ask_helper(session, helper, key)?.map(|credentials| Found {
                credentials,
                origin: format!("docker-credential-{helper}"),
            }));
        }
    }
    for key in &keys {
        let Some(entry) = config.auths.get(key) else {
            continue;
        };
        if let Some(token) = entry
            .identitytoken
            .as_ref()
            .filter(|token| !token.is_empty())
        {
            return Ok(Some(Found {
                credentials: Credentials::IdentityToken(token.clone()),
                origin,
            }));
        }
        if let Some(auth) = entry.auth.as_ref().filter(|auth| !auth.is_empty()) {
            let decoded = decode_base64(auth)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| malformed(&format!("`auth` of `{key}` is no base64 text")))?;
            let (user, password) = decoded
                .split_once(':')
                .ok_or_else(|| malformed(&format!("`auth` of `{key}` has no colon")))?;
            return Ok(Some(Found {
                credentials: Credentials::Password {
                    user: user.to_owned(),
                    // Some tools pad with NUL.
                    password: password.trim_end_matches('\0').to_owned(),
                },
                origin,
            }));
        }
        if let (Some(user), Some(password)) = (&entry.username, &entry.password) {
            return Ok(Some(Found {
                credentials: Credentials::Password {
                    user: user.clone(),
                    password: password.clone(),
                },
                origin,
            }));
        }
    }
    if let Some(helper) = config.creds_store.filter(|helper| !helper.is_empty()) {
        for key in image.credential_keys().iter().take(2) {
            if let Some(credentials) = ask_helper(session, &helper, key)? {
                return Ok(Some(Found {
                    credentials,
                    origin: format!("docker-credential-{helper}"),
                }));
            }
        }
    }
    Ok(None)
}

/// Asks `docker-credential-<helper> get`; `None` where it knows nothing of `server`.
fn ask_helper(
    session: &Session,
    helper: &str,
    server: &str,
) -> Result<Option<Credentials>, ImageError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        username: String,
        secret: String,
    }
    let program = format!("docker-credential-{helper}");
    let failed = |why: String| {
        ImageError::new(
            ErrorKind::Denied,
            format!("the credential helper `{program}` failed for {server}: {why}"),
        )
        .hint("log in again, or remove the helper from the configuration file")
    };
    if helper.contains('/') {
        return Err(failed("its name holds a slash".into()));
    }
    let mut child = Command::new(&program)
        .arg("get")
        .env_clear()
        .envs(session.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(format!("cannot start it: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that knows without reading may close its end.
        let _ = stdin.write_all(server.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        let said = said.trim();
        if said.contains("credentials not found") {
            return Ok(None);
        }
        return Err(failed(format!("{} ({})", said, output.status)));
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)
        .map_err(|_| failed("its answer is not the JSON of the helper protocol".into()))?;
    Ok(Some(if answer.username == "<token>" {
        Credentials::IdentityToken(answer.secret)
    } else {
        Credentials::Password {
            user: answer.username,
            password: answer.secret,
        }
    }))
}

fn read_bounded(file: impl Read) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Standard base64 with padding, for the `Basic` scheme.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = 0u32;
        for at in 0..3 {
            word = word << 8 | u32::from(group.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let index = (word >> (18 - 6 * at) & 63) as usize;
            text.push(if at <= group.len() {
                char::from(ALPHABET[index])
            } else {
                '='
            });
        }
    }
    text
}

/// Standard or URL-safe base64, with or without padding.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut bits) = (0u32, 0);
    for byte in text.trim().trim_end_matches('=').bytes() {
        let byte = match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        };
        let value = ALPHABET.iter().position(|&letter| letter == byte)?;
        word = word << 6 | u32::try_from(value).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn session(home: &Path, env: &[(&str, &str)]) -> Session {
        Session {
            uid: 1000,
            gid: 1000,
            groups: Vec::new(),
            user: "alice".into(),
            home: home.to_owned(),
            cwd: home.to_owned(),
            env: env
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .collect(),
        }
    }

    fn said(found: Result<Option<Found>, ImageError>) -> String {
        match found {
            Ok(None) => "anonymous".into(),
            Ok(Some(found)) => match found.credentials {
                Credentials::Password { user, password } => format!("{user}:{password}"),
                Credentials::IdentityToken(token) => format!("token {token}"),
            },
            Err(error) => error.to_string(),
        }
    }

    fn image(text: &str) -> RegistryRef {
        RegistryRef::parse(text).expect("a reference")
    }

    #[test]
    fn base64_goes_round_for_every_length() {
        for length in 0..20u8 {
            let bytes: Vec<u8> = (0..length).map(|at| at.wrapping_mul(37)).collect();
            assert_eq!(decode_base64(&encode_base64(&bytes)), Some(bytes));
        }
        assert_eq!(encode_base64(b"alice:secret"), "YWxpY2U6c2VjcmV0");
        assert_eq!(decode_base64("?"), None);
    }

    #[test]
    fn variables_win_over_files_and_apptainer_over_docker() {
        let home = tempfile::tempdir().expect("a folder");
        let env = [
            ("DOCKER_USERNAME", "d"),
            ("DOCKER_PASSWORD", "d"),
            ("APPTAINER_DOCKER_USERNAME", "a"),
            ("APPTAINER_DOCKER_PASSWORD", "p"),
        ];
        let found = find(&session(home.path(), &env), None, &image("h.io/x"));
        assert_eq!(said(found), "a:p");
    }

    #[test]
    fn the_configuration_of_docker_is_read_by_registry() {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join(".docker")).expect("own folder");
        std::fs::write(
            home.path().join(".docker/config.json"),
            r#"{"auths":{"h.io:5000":{"auth":"YWxpY2U6c2VjcmV0"},
                "https://index.docker.io/v1/":{"identitytoken":"t"},
                "p.io/team":{"username":"u","password":"w"}}}"#,
        )
        .expect("own folder");
        let session = session(home.path(), &[]);
        let ask = |text: &str| said(find(&session, None, &image(text)));
        assert_eq!(ask("h.io:5000/x"), "alice:secret");
        assert_eq!(ask("python"), "token t");
        assert_eq!(ask("p.io/team/app"), "u:w");
        assert_eq!(ask("p.io/other/app"), "anonymous");
    }

    #[test]
    fn a_credential_helper_is_asked_by_its_protocol() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().expect("a folder");
        let helper = home.path().join("docker-credential-fake");
        std::fs::write(
            &helper,
            "#!/bin/sh\nread server\n[ \"$server\" = h.io ] || { echo 'credentials not found in native keychain'; exit 1; }\n\
             echo '{\"ServerURL\":\"h.io\",\"Username\":\"bob\",\"Secret\":\"pw\"}'\n",
        )
        .expect("own folder");
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).expect("own");
        let file = home.path().join("auth.json");
        std::fs::write(
            &file,
            r#"{"credHelpers":{"h.io":"fake","other.io":"fake"}}"#,
        )
        .expect("own");
        let path = format!("{}:/usr/bin:/bin", home.path().display());
        // The helper is looked up on the PATH of the test itself.
        let session = session(home.path(), &[("PATH", &path)]);
        let ask = |text: &str| said(find(&session, Some(&file), &image(text)));
        assert_eq!(ask("h.io/x"), "bob:pw");
        assert_eq!(ask("other.io/x"), "anonymous");
    }

    #[test]
    fn a_broken_file_is_named() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("auth.json");
        std::fs::write(&file, "{").expect("own");
        let error = said(find(
            &session(home.path(), &[]),
            Some(&file),
            &image("h.io/x"),
        ));
        assert!(error.contains("auth.json"), "{error}");
        let missing = home.path().join("none.json");
        let error = said(find(
            &session(home.path(), &[]),
            Some(&missing),
            &image("h.io/x"),
        ));
        assert!(error.contains("none.json"), "{error}");
    }

    #[test]
    fn a_secret_is_not_shown_by_debug() {
        let shown = format!(
            "{:?}",
            Credentials::Password {
                user: "u".into(),
                password: "hidden".into()
            }
        );
        assert!(!shown.contains("hidden"));
    }
}
