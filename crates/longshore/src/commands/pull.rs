//! `longshore pull`: an image from a registry or an archive, into the store or a directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use longshore_host::Session;
use longshore_image::{
    Bare, ErrorKind, Existing, ImageError, ImageRef, LayerKeeping, Platform, PullOptions,
    PullPolicy, Store, Transport, open, pull_sandbox,
};
use serde::Serialize;

use crate::error::{CommandError, DONE, Kind, Status};
use crate::progress::PullProgress;
use crate::ui::Ui;

/// Where an image comes from and for which machine; shared by all commands that may pull.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SourceArgs {
    /// Architecture to pull, as in `arm64` (default: this machine's)
    #[arg(long, value_name = "ARCH", conflicts_with = "platform")]
    pub(crate) arch: Option<String>,
    /// Platform to pull, as in `linux/arm64/v8`
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub(crate) platform: Option<String>,
    /// Speak plain HTTP to the registry (a registry on this machine needs no such option)
    #[arg(long, alias = "nohttps")]
    pub(crate) no_https: bool,
    /// Credentials file in place of ~/.docker/config.json and its like
    #[arg(long, value_name = "FILE")]
    pub(crate) authfile: Option<PathBuf>,
}

/// Pull an image into the store, or into a directory
///
/// IMAGE is docker://NAME[:TAG][@DIGEST], oci:DIR[:TAG], oci-archive:FILE[:TAG] or
/// docker-archive:FILE[:TAG]; a bare NAME is an image of a registry. Layers come in parallel, are checked
/// while they are unpacked, and are kept once: a pull that was interrupted continues where it was.
/// Credentials are taken from APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD, and from the files
/// that docker, podman and apptainer write.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Directory to write, then the image; without a directory the image goes into the store
    #[arg(value_name = "[DIRECTORY] IMAGE", num_args = 1..=2, required = true)]
    places: Vec<OsString>,
    /// Directory to write
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "name")]
    sandbox: Option<PathBuf>,
    /// Directory to write (Apptainer's spelling)
    #[arg(long, value_name = "NAME")]
    name: Option<PathBuf>,
    /// Folder in which the directory is made
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Replace a directory that an earlier pull has made
    #[arg(short = 'F', long)]
    force: bool,
    /// Keep no layers in the store
    #[arg(long)]
    disable_cache: bool,
    #[command(flatten)]
    source: SourceArgs,
    /// Print one JSON object
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Serialize)]
struct Pulled<'p> {
    r#type: &'static str,
    name: &'p str,
    digest: Option<String>,
    path: &'p Path,
    stored: bool,
}

impl SourceArgs {
    /// The options of a pull, from the command line and the environment.
    pub(crate) fn options(
        &self,
        session: &Session,
        policy: PullPolicy,
    ) -> Result<PullOptions, CommandError> {
        let variable = |name: &str| {
            ["LONGSHORE", "APPTAINER", "SINGULARITY"]
                .iter()
                .find_map(|prefix| session.var(format!("{prefix}_{name}")))
                .filter(|value| !value.is_empty())
                .map(|value| value.to_string_lossy().into_owned())
        };
        let is_set = |name: &str| {
            variable(name).is_some_and(|value| {
                !matches!(
                    value.to_ascii_lowercase().as_str(),
                    "0" | "false" | "no" | "f" | "n"
                )
            })
        };
        let platform = match (&self.platform, &self.arch) {
            (Some(platform), _) => Platform::parse(platform).map_err(image_error)?,
            (None, Some(arch)) => Platform::of_arch(arch),
            (None, None) => {
                variable("PULL_ARCH").map_or_else(Platform::here, |arch| Platform::of_arch(&arch))
            }
        };
        let plain = self.no_https || is_set("NOHTTPS") || is_set("NO_HTTPS");
        let parallel_downloads = match variable("DOWNLOAD_CONCURRENCY") {
            None => PullOptions::default().parallel_downloads,
            Some(text) => text
                .parse()
                .ok()
                .filter(|&count| count > 0)
                .ok_or_else(|| {
                    CommandError::new(
                        Kind::Usage,
                        format!("DOWNLOAD_CONCURRENCY is `{text}`, which is no count"),
                    )
                })?,
        };
        Ok(PullOptions {
            platform,
            transport: if plain {
                Transport::Plain
            } else {
                Transport::Secure
            },
            auth_file: self.authfile.clone(),
            policy,
            parallel_downloads,
        })
    }
}

/// Sorts a failure of the image crate and keeps its hint.
pub(crate) fn image_error(error: ImageError) -> CommandError {
    let kind = match error.kind {
        ErrorKind::Reference => Kind::Usage,
        ErrorKind::ReadOnly => Kind::HostCannot,
        _ => Kind::Failed,
    };
    let told = CommandError::from_error(kind, &error);
    match error.next_step() {
        Some(hint) => told.hint(hint),
        None => told,
    }
}

/// Pulls and tells what is where.
pub(crate) fn run(ui: &mut Ui, args: &PullArgs) -> Result<Status, CommandError> {
    let session =
        Session::probe().map_err(|error| CommandError::from_error(Kind::Failed, &error))?;
    let (target, image) = match &args.places[..] {
        [image] => (None, image),
        [target, image] => (Some(PathBuf::from(target)), image),
        _ => unreachable!("one or two places are asked for"),
    };
    let image = ImageRef::parse(image, Bare::Registry).map_err(image_error)?;
    let named = args.sandbox.clone().or(args.name.clone());
    if named.is_some() && target.is_some() {
        return Err(CommandError::new(
            Kind::Usage,
            "the directory is named twice: before the image and by an option",
        ));
    }
    let folder = args.dir.clone().or_else(|| {
        [
            "APPTAINER_PULLDIR",
            "APPTAINER_PULLFOLDER",
            "SINGULARITY_PULLDIR",
        ]
        .iter()
        .find_map(|name| session.var(name))
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
    });
    let target = match (named.or(target), args.dir.is_some()) {
        (None, true) => Some(PathBuf::from(image.short_name())),
        (target, _) => target,
    };
    let target = match (target, folder) {
        (Some(target), Some(folder)) => Some(folder.join(target)),
        (target, _) => target,
    };
    if let Some(target) = &target
        && target.extension().is_some_and(|ending| {
            ["sif", "simg", "sqfs", "sqsh", "squashfs", "img"]
                .iter()
                .any(|known| ending == *known)
        })
    {
        return Err(CommandError::new(
            Kind::Failed,
            format!(
                "cannot write {}: single-file images come in a later release",
                target.display()
            ),
        )
        .hint("leave the file out to pull into the store, or name a directory"));
    }
    if target.is_none() && args.disable_cache {
        return Err(CommandError::new(
            Kind::Usage,
            "--disable-cache leaves no place for the image",
        )
        .hint("name a directory with --sandbox"));
    }
    let store = Store::of(&session);
    let options = args.source.options(&session, PullPolicy::Always)?;
    let progress = PullProgress::new(ui);
    let (name, digest, path) = match &target {
        None => {
            let opened = open(&session, &store, &options, &image, &progress);
            progress.finish();
            let opened = opened.map_err(image_error)?;
            (opened.name, opened.digest, opened.rootfs)
        }
        Some(target) => {
            let existing = if args.force {
                Existing::Replace
            } else {
                Existing::Refuse
            };
            let layers = if args.disable_cache {
                LayerKeeping::Nowhere
            } else {
                LayerKeeping::Store
            };
            let made = pull_sandbox(
                &session, &store, &options, &image, target, existing, layers, &progress,
            );
            progress.finish();
            let made = made.map_err(image_error)?;
            (made.name, Some(made.digest), made.path)
        }
    };
    if args.json {
        ui.json(&Pulled {
            r#type: "pulled",
            name: &name,
            digest: digest.map(|digest| digest.to_string()),
            path: &path,
            stored: target.is_none(),
        })?;
    } else {
        let digest = digest
            .map(|digest| format!(" ({digest})"))
            .unwrap_or_default();
        let text = match target {
            None => format!("{name}{digest} is in the store"),
            Some(_) => format!("{name}{digest} is in {}", path.display()),
        };
        ui.result(&text)?;
    }
    Ok(DONE)
}
