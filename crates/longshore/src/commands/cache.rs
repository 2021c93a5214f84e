//! `longshore cache`: what the store holds, and how to make room.

use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use longshore_host::Session;
use longshore_image::{CleanPlan, ItemKind, Store, StoreItem};
use serde::Serialize;

use crate::commands::images::{ago, size};
use crate::commands::pull::image_error;
use crate::error::{CommandError, DONE, Kind, Status};
use crate::ui::Ui;

/// Show or empty the store of images
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(ListArgs),
    Clean(CleanArgs),
}

/// List what takes space in the store
#[derive(Debug, Args)]
struct ListArgs {
    /// Print one JSON object a line
    #[arg(short = 'j', long)]
    json: bool,
}

/// Remove what pulls can do without: layers, replaced images, and what interrupted commands left
///
/// Images stay runnable; with --all they go too. What a running program or pull uses is never
/// removed.
#[derive(Debug, Args)]
struct CleanArgs {
    /// Remove the images too
    #[arg(short = 'a', long)]
    all: bool,
    /// Only what was not used for this many days
    #[arg(short = 'D', long, value_name = "DAYS", default_value_t = 0)]
    days: u32,
    /// Say what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print one JSON object a line
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Serialize)]
struct Record<'i> {
    r#type: &'static str,
    #[serde(flatten)]
    item: &'i StoreItem,
}

/// Lists or cleans.
pub(crate) fn run(ui: &mut Ui, args: &CacheArgs) -> Result<Status, CommandError> {
    let session =
        Session::probe().map_err(|error| CommandError::from_error(Kind::Failed, &error))?;
    let store = Store::of(&session);
    match &args.action {
        Action::List(args) => list(ui, &store, args),
        Action::Clean(args) => clean(ui, &store, args),
    }
}

fn list(ui: &mut Ui, store: &Store, args: &ListArgs) -> Result<Status, CommandError> {
    let items = store.items().map_err(image_error)?;
    if args.json {
        for item in &items {
            ui.json(&Record {
                r#type: "item",
                item,
            })?;
        }
        return Ok(DONE);
    }
    let total_bytes = items.iter().map(|item| item.disk_bytes).sum();
    if !items.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["KIND", "NAME", "SIZE", "USED", ""]);
        for item in items {
            table.add_row([
                kind(item.kind).to_owned(),
                item.name,
                size(item.disk_bytes),
                ago(item.used_s),
                if item.in_use { "in use" } else { "" }.to_owned(),
            ]);
        }
        ui.result(&table.trim_fmt())?;
    }
    ui.result(&format!(
        "{} in {}",
        size(total_bytes),
        store.root().display()
    ))?;
    Ok(DONE)
}

fn clean(ui: &mut Ui, store: &Store, args: &CleanArgs) -> Result<Status, CommandError> {
    let plan = CleanPlan {
        images: args.all,
        unused_for: Duration::from_secs(u64::from(args.days) * 86_400),
    };
    let (label, done) = if args.dry_run {
        ("would-remove", "would be freed")
    } else {
        ("removed", "freed")
    };
    let mut freed_bytes = 0;
    for item in store.cleanable(plan).map_err(image_error)? {
        if !args.dry_run && !store.remove(&item).map_err(image_error)? {
            ui.notice(&format!("{} is in use by now, and stays", item.name));
            continue;
        }
        freed_bytes += item.disk_bytes;
        if args.json {
            ui.json(&Record {
                r#type: label,
                item: &item,
            })?;
        } else {
            let size = size(item.disk_bytes);
            ui.result(&format!(
                "{label} {} {} ({size})",
                kind(item.kind),
                item.name
            ))?;
        }
    }
    if !args.json {
        ui.result(&format!(
            "{} {done} in {}",
            size(freed_bytes),
            store.root().display()
        ))?;
    }
    Ok(DONE)
}

fn kind(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Image => "image",
        ItemKind::Unnamed => "replaced image",
        ItemKind::Layer => "layer",
        ItemKind::Partial => "partial layer",
        ItemKind::Leftover => "leftover",
    }
}
