//! `longshore inspect`: what an image says about itself.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::Args;
use longshore_host::Session;
use longshore_image::{Bare, ImageRef, Inspection, PullPolicy, Store, inspect};
use serde_json::{Map, Value, json};

use crate::commands::images::size;
use crate::commands::pull::{SourceArgs, image_error};
use crate::error::{CommandError, DONE, Kind, Status};
use crate::progress::PullProgress;
use crate::ui::{Ui, visible};

/// Show what an image says about itself
///
/// Without an option the labels, the program, the environment, the layers and the history are shown.
/// With --json the record has Apptainer's shape (`data.attributes`), and the image's configuration and
/// manifest beside it.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Image: a directory, docker://NAME, oci:DIR, oci-archive:FILE, docker-archive:FILE, or the bare
    /// name of an image in the store
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// Labels
    #[arg(short = 'l', long)]
    labels: bool,
    /// Definition file
    #[arg(short = 'd', long)]
    deffile: bool,
    /// What `run` starts
    #[arg(short = 'r', long)]
    runscript: bool,
    /// Start script of an instance
    #[arg(short = 's', long)]
    startscript: bool,
    /// Test script
    #[arg(short = 't', long)]
    test: bool,
    /// Environment
    #[arg(short = 'e', long)]
    environment: bool,
    /// Help text
    #[arg(short = 'H', long)]
    helpfile: bool,
    /// Everything, as JSON
    #[arg(long)]
    all: bool,
    /// Print one JSON object
    #[arg(short = 'j', long)]
    json: bool,
    /// Ask the registry, also where the image is in the store
    #[arg(long)]
    remote: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// Shows what was asked for.
pub(crate) fn run(ui: &mut Ui, args: &InspectArgs) -> Result<Status, CommandError> {
    let session =
        Session::probe().map_err(|error| CommandError::from_error(Kind::Failed, &error))?;
    let mut image = ImageRef::parse(&args.image, Bare::Path).map_err(image_error)?;
    let policy = if args.remote {
        PullPolicy::Always
    } else {
        PullPolicy::Missing
    };
    let options = args.source.options(&session, policy)?;
    let store = Store::of(&session);
    if let ImageRef::Path(path) = &image
        && !session.cwd.join(path).exists()
        && let Ok(named) = ImageRef::parse(&args.image, Bare::Registry)
        && (args.remote
            || store
                .find_ref(&named.to_string(), &options.platform)
                .is_some())
    {
        image = named;
    }
    let progress = PullProgress::new(ui);
    let found = inspect(&session, &store, &options, &image, &progress);
    progress.finish();
    let found = found.map_err(image_error)?;
    if args.json || args.all {
        ui.json(&record(args, &found))?;
    } else {
        ui.result(&visible(&text(args, &found)))?;
    }
    Ok(DONE)
}

/// Whether nothing in particular was asked for.
fn is_overview(args: &InspectArgs) -> bool {
    !(args.labels
        || args.deffile
        || args.runscript
        || args.startscript
        || args.test
        || args.environment
        || args.helpfile)
}

/// A script of Apptainer's in the tree, where there is one.
fn script(found: &Inspection, name: &str) -> Option<String> {
    let path = found.rootfs.as_ref()?.join(".singularity.d").join(name);
    read_plain(&path)
}

/// Reads a file of the image, but never through a link: it might lead out of the tree.
fn read_plain(path: &Path) -> Option<String> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let folder = fs::symlink_metadata(path.parent()?).ok()?;
    if !metadata.is_file() || !folder.is_dir() || metadata.len() > 1 << 20 {
        return None;
    }
    fs::read(path)
        .ok()
        .map(|text| String::from_utf8_lossy(&text).into_owned())
}

fn record(args: &InspectArgs, found: &Inspection) -> Value {
    let everything = args.all || is_overview(args);
    let mut attributes = Map::new();
    let mut put = |wanted: bool, name: &str, value: Option<Value>| {
        if wanted && let Some(value) = value {
            attributes.insert(name.to_owned(), value);
        }
    };
    put(
        args.labels || everything,
        "labels",
        Some(json!(found.config.labels)),
    );
    let script = |name| script(found, name).map(Value::from);
    put(args.deffile || everything, "deffile", script("Singularity"));
    put(
        args.runscript || everything,
        "runscript",
        script("runscript"),
    );
    put(
        args.startscript || everything,
        "startscript",
        script("startscript"),
    );
    put(args.test || everything, "test", script("test"));
    put(
        args.helpfile || everything,
        "helpfile",
        script("runscript.help"),
    );
    put(
        args.environment || everything,
        "environment",
        Some(json!({ "oci-config": found.config.env.join("\n") })),
    );
    let config: Value = serde_json::from_slice(&found.raw_config).unwrap_or(Value::Null);
    json!({
        "type": "container",
        "data": { "attributes": attributes },
        "name": found.name,
        "digest": found.digest.as_ref().map(ToString::to_string),
        "config": config,
        "manifest": found.manifest,
    })
}

fn text(args: &InspectArgs, found: &Inspection) -> String {
    let config = &found.config;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key}: {value}");
    };
    let words =
        |words: &[String]| serde_json::to_string(words).expect("strings can be written as JSON");
    if is_overview(args) {
        line("image", &found.name);
        if let Some(digest) = &found.digest {
            line("digest", &digest.to_string());
        }
        if !config.architecture.is_empty() {
            line(
                "platform",
                &format!("{}/{}", config.os, config.architecture),
            );
        }
        for (key, value) in [
            ("created", &config.created),
            ("author", &config.author),
            ("user", &config.user),
            ("working directory", &config.working_dir),
        ] {
            if let Some(value) = value {
                line(key, value);
            }
        }
        if !config.entrypoint.is_empty() {
            line("entry point", &words(&config.entrypoint));
        }
        if !config.cmd.is_empty() {
            line("command", &words(&config.cmd));
        }
        for (key, list) in [("port", &config.exposed), ("volume", &config.volumes)] {
            for one in list {
                line(key, one);
            }
        }
    }
    if args.labels || is_overview(args) {
        for (key, value) in &config.labels {
            line(&format!("label {key}"), value);
        }
    }
    if args.environment || is_overview(args) {
        for variable in &config.env {
            line("env", variable);
        }
    }
    for (wanted, name) in [
        (args.deffile, "Singularity"),
        (args.runscript, "runscript"),
        (args.startscript, "startscript"),
        (args.test, "test"),
        (args.helpfile, "runscript.help"),
    ] {
        if !wanted {
            continue;
        }
        match script(found, name) {
            Some(script) => line(name, &format!("\n{script}")),
            None if name == "runscript" && !config.entrypoint.is_empty() => {
                line("entry point", &words(&config.entrypoint));
            }
            None if name == "runscript" && !config.cmd.is_empty() => {
                line("command", &words(&config.cmd));
            }
            None => line(name, "(the image has none)"),
        }
    }
    if is_overview(args) {
        for layer in found.manifest.iter().flat_map(|manifest| &manifest.layers) {
            line("layer", &format!("{} {}", layer.digest, size(layer.size)));
        }
        for step in &config.history {
            let by = step.created_by.as_deref().unwrap_or("(unknown)");
            let short: String = by.split_whitespace().collect::<Vec<_>>().join(" ");
            line("step", &short.chars().take(160).collect::<String>());
        }
    }
    text
}
