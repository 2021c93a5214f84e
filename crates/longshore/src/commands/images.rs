//! `longshore images`: what can be run without a network.

use clap::Args;
use comfy_table::{Table, presets};
use longshore_host::Session;
use longshore_image::Store;
use serde::Serialize;

use crate::commands::pull::image_error;
use crate::error::{CommandError, DONE, Kind, Status};
use crate::ui::Ui;

/// List the images in the store
#[derive(Debug, Args)]
pub(crate) struct ImagesArgs {
    /// Print one JSON object a line
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Serialize)]
struct Record<T: Serialize> {
    r#type: &'static str,
    #[serde(flatten)]
    image: T,
}

/// Lists the images by name.
pub(crate) fn run(ui: &mut Ui, args: &ImagesArgs) -> Result<Status, CommandError> {
    let session =
        Session::probe().map_err(|error| CommandError::from_error(Kind::Failed, &error))?;
    let store = Store::of(&session);
    let images = store.images().map_err(image_error)?;
    if args.json {
        for image in images {
            ui.json(&Record {
                r#type: "image",
                image,
            })?;
        }
        return Ok(DONE);
    }
    if images.is_empty() {
        ui.notice(&format!("there is no image in {}", store.root().display()));
        return Ok(DONE);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["IMAGE", "DIGEST", "PLATFORM", "LAYERS", "USED"]);
    for image in images {
        let name = if image.names.is_empty() {
            "(replaced)".to_owned()
        } else {
            image.names.join("\n")
        };
        table.add_row([
            name,
            image.digest.short().to_owned(),
            image.platform,
            size(image.layers_bytes),
            ago(image.used_s),
        ]);
    }
    ui.result(&table.trim_fmt())?;
    Ok(DONE)
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// How long ago a time was, for people.
pub(crate) fn ago(seconds: u64) -> String {
    let now = jiff::Timestamp::now().as_second();
    let past = u64::try_from(now).unwrap_or(0).saturating_sub(seconds);
    match past {
        0..60 => "just now".into(),
        60..3600 => format!("{} min ago", past / 60),
        3600..86400 => format!("{} h ago", past / 3600),
        _ => format!("{} days ago", past / 86400),
    }
}
