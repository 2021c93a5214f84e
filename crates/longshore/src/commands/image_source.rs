//! Finds the image that a command names and makes it ready to be run.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use longshore_container::{ImageConfig, Rootfs, absolute};
use longshore_host::Session;
use serde::Deserialize;

use crate::error::{CommandError, Kind};
use crate::ui::Ui;

/// Where a directory that came from a registry keeps its OCI image configuration.
pub(crate) const CONFIG_IN_DIRECTORY: &str = ".longshore/config.json";

/// Opens the image that the user named.
pub(crate) fn open(_ui: &mut Ui, session: &Session, image: &OsStr) -> Result<Rootfs, CommandError> {
    open_directory(session, image)
}

fn open_directory(session: &Session, image: &OsStr) -> Result<Rootfs, CommandError> {
    let path = absolute(Path::new(image), &session.cwd);
    let not_usable = |reason: String| {
        CommandError::new(
            Kind::NotStarted,
            format!("cannot use the image {}: {reason}", path.display()),
        )
    };
    let metadata = std::fs::metadata(&path).map_err(|error| {
        let error = not_usable(kernel_words(&error));
        if image.to_string_lossy().contains(['/', '\\']) {
            error
        } else {
            error.hint("an image is a directory, or a reference such as docker://debian:12")
        }
    })?;
    if !metadata.is_dir() {
        return Err(not_usable("image format not recognized".to_owned())
            .hint("directories can be run; single-file images are not supported yet"));
    }
    let file = path.join(CONFIG_IN_DIRECTORY);
    let config = match std::fs::read(&file) {
        Ok(text) => parse_config(&text).map_err(|error| {
            not_usable(format!(
                "{} is not an image configuration: {error}",
                file.display()
            ))
        })?,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            ImageConfig::default()
        }
        Err(error) => {
            return Err(not_usable(format!(
                "{}: {}",
                file.display(),
                kernel_words(&error)
            )));
        }
    };
    Ok(Rootfs {
        name: path.clone().into_os_string(),
        path,
        config,
    })
}

fn kernel_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

/// The part of an OCI image configuration that is read, with the names of the specification.
#[derive(Deserialize)]
struct OciConfiguration {
    #[serde(default)]
    config: Option<OciConfig>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct OciConfig {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    labels: Option<std::collections::BTreeMap<String, String>>,
}

/// Reads an OCI image configuration, as a registry stores it.
pub(crate) fn parse_config(text: &[u8]) -> Result<ImageConfig, serde_json::Error> {
    let read: OciConfiguration = serde_json::from_slice(text)?;
    let config = read.config.unwrap_or_default();
    let words = |words: Option<Vec<String>>| {
        words
            .unwrap_or_default()
            .into_iter()
            .map(OsString::from)
            .collect()
    };
    Ok(ImageConfig {
        env: config
            .env
            .unwrap_or_default()
            .into_iter()
            .filter_map(|entry| {
                let (name, value) = entry.split_once('=')?;
                Some((name.into(), value.into()))
            })
            .collect(),
        entrypoint: words(config.entrypoint),
        cmd: words(config.cmd),
        working_dir: config
            .working_dir
            .filter(|path| !path.is_empty())
            .map(Into::into),
        user: config.user.filter(|user| !user.is_empty()),
        labels: config.labels.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_byte_for_byte() {
        let text = br#"{"architecture":"amd64","config":{"Env":["A=a b$c \"d\"","B=x=y"],
            "Entrypoint":["/run me","-x"],"Cmd":null,"WorkingDir":"/w","User":""}}"#;
        let config = parse_config(text).expect("is JSON");
        assert_eq!(
            config.env,
            [
                ("A".into(), "a b$c \"d\"".into()),
                ("B".into(), "x=y".into())
            ]
        );
        assert_eq!(config.entrypoint, ["/run me", "-x"]);
        assert_eq!(config.working_dir.as_deref(), Some(Path::new("/w")));
        assert_eq!(config.user, None);
        assert!(parse_config(b"{}").expect("is JSON").cmd.is_empty());
    }
}
