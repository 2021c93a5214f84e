//! Finds the image that a command names and makes it ready to be run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use longshore_container::{ImageConfig, Rootfs, absolute};
use longshore_host::Session;
use longshore_image::{Bare, ImageRef, Lock, OpenImage, PullPolicy, Store};

use crate::commands::pull::{SourceArgs, image_error};
use crate::error::{CommandError, Kind};
use crate::progress::PullProgress;
use crate::ui::Ui;

/// How commands that start containers come to their image.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Image")]
pub(crate) struct ImageOptions {
    /// When to ask the registry for an image that is named by a reference
    #[arg(long, value_name = "WHEN", default_value = "missing")]
    pull: When,
    #[command(flatten)]
    source: SourceArgs,
}

/// When to ask the registry.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum When {
    /// For each start; layers that are here are not fetched again
    Always,
    /// For what the store has not
    #[default]
    Missing,
    /// Never
    Never,
}

/// Opens the image that the user named: a directory, an archive, or a reference, which is pulled
/// into the store first where it is missing there.
///
/// The image stays protected against `cache clean` for as long as this process, or the program
/// that replaces it, runs.
pub(crate) fn open(
    ui: &mut Ui,
    session: &Session,
    image: &OsStr,
    options: &ImageOptions,
) -> Result<Rootfs, CommandError> {
    let (rootfs, lock) = open_locked(ui, session, image, options)?;
    // The lock is released when its descriptor is closed, which is for the kernel to do.
    std::mem::forget(lock);
    Ok(rootfs)
}

/// The same, with what protects the image for whoever has it open.
pub(crate) fn open_locked(
    ui: &mut Ui,
    session: &Session,
    image: &OsStr,
    options: &ImageOptions,
) -> Result<(Rootfs, Option<Lock>), CommandError> {
    let store = Store::of(session);
    let policy = match options.pull {
        When::Always => PullPolicy::Always,
        When::Missing => PullPolicy::Missing,
        When::Never => PullPolicy::Never,
    };
    let pull = options
        .source
        .options(session, policy)
        .map_err(not_started)?;
    let reference = named(session, &store, &pull.platform, image).map_err(not_started)?;
    let progress = PullProgress::new(ui);
    let opened = longshore_image::open(session, &store, &pull, &reference, &progress);
    progress.finish();
    let mut opened = opened.map_err(|error| not_started(image_error(error)))?;
    let mut lock = opened.lock.take();
    if let Some(lock) = &mut lock {
        lock.keep_over_exec().map_err(|error| {
            CommandError::new(
                Kind::NotStarted,
                format!("cannot keep the lock of {}: {error}", opened.name),
            )
        })?;
    }
    Ok((rootfs(opened), lock))
}

/// What a word means as an image: a path where there is one, else the name of a stored image.
fn named(
    session: &Session,
    store: &Store,
    platform: &longshore_image::Platform,
    image: &OsStr,
) -> Result<ImageRef, CommandError> {
    let reference = ImageRef::parse(image, Bare::Path).map_err(image_error)?;
    let ImageRef::Path(path) = &reference else {
        return Ok(reference);
    };
    if absolute(path, &session.cwd).exists() {
        return Ok(reference);
    }
    let stored = ImageRef::parse(image, Bare::Registry)
        .ok()
        .filter(|reference| store.find_ref(&reference.to_string(), platform).is_some());
    stored.ok_or_else(|| {
        let shown = image.to_string_lossy();
        let missing = CommandError::new(Kind::NotStarted, format!("there is no image {shown}"));
        if image.as_bytes().contains(&b'/') && Path::new(image).is_absolute() {
            return missing;
        }
        missing.hint(format!(
            "an image is a directory, an archive, or a reference such as docker://{}; `longshore images` lists the store",
            if shown.is_empty() { "debian:12" } else { shown.trim_start_matches("./") }
        ))
    })
}

/// A failure before the program was started has one exit status, whatever its cause.
fn not_started(error: CommandError) -> CommandError {
    error.with_kind(Kind::NotStarted)
}

fn rootfs(image: OpenImage) -> Rootfs {
    let words = |words: Vec<String>| words.into_iter().map(OsString::from).collect();
    let config = image.config;
    Rootfs {
        name: image.name.into(),
        path: image.rootfs,
        config: ImageConfig {
            env: config
                .env
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
                .map(PathBuf::from),
            user: config.user.filter(|user| !user.is_empty()),
            labels: config.labels,
        },
    }
}
