//! `longshore bench`: single measurements, made and reported like studies.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore_bench::{KINDS, KNOWN_RUNTIMES, known_runtime};
use longshore_host::{Session, find_program};
use longshore_study::Study;

use super::study::{Settings, measure, study_error};
use crate::error::{CommandError, Kind, Status};
use crate::ui::Ui;

/// Measure one thing on this machine
///
/// Each measurement is a study with one axis: it has rounds, validity checks, a result folder and a
/// report.
#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    workload: BenchWorkload,
}

#[derive(Subcommand)]
enum BenchWorkload {
    Start(StartArgs),
}

/// Time the start of a container against the host and other runtimes
///
/// Every runtime runs the same small command in the same directory image, once a round, in an order
/// that changes from round to round. Wall time is from start to end; CPU time is that of the command
/// and everything it waited for. Known runtimes are host, longshore, unshare, bwrap, ch-run, crun,
/// apptainer and podman; those that are installed are compared unless `--runtime` names some.
#[derive(Args)]
struct StartArgs {
    /// Directory image, or a reference for longshore alone
    #[arg(value_name = "IMAGE")]
    image: String,
    /// Starts of each runtime
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// A known runtime, or a template with {image} and {cmd}; can be given several times
    #[arg(long = "runtime", value_name = "NAME[=TEMPLATE]")]
    runtimes: Vec<String>,
    /// Command to run in the image
    #[arg(long, value_name = "CMD", default_value = "/bin/true")]
    command: String,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
    /// Folder for the result (default: longshore-results/bench-start-TIME)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(ui: &mut Ui, args: &BenchArgs) -> Result<Status, CommandError> {
    match &args.workload {
        BenchWorkload::Start(args) => start(ui, args),
    }
}

fn start(ui: &mut Ui, args: &StartArgs) -> Result<Status, CommandError> {
    let text = start_study(args)?;
    let study = Study::parse("bench start", &text, KINDS).map_err(|error| study_error(&error))?;
    let settings = Settings {
        out: args.out.clone(),
        json: args.json,
        keep: false,
        changes: Vec::new(),
    };
    measure(ui, &study, &settings)
}

/// The measurement as a study file, so that it can be repeated and changed.
fn start_study(args: &StartArgs) -> Result<String, CommandError> {
    let session =
        Session::probe().map_err(|error| CommandError::from_error(Kind::HostCannot, &error))?;
    let mut runtimes = vec![("host".to_owned(), "host".to_owned())];
    for given in &args.runtimes {
        let (name, template) = given.split_once('=').unwrap_or((given, given));
        if name == template && known_runtime(name).is_none() {
            let known: Vec<&str> = KNOWN_RUNTIMES.iter().map(|runtime| runtime.name).collect();
            return Err(CommandError::new(
                Kind::Usage,
                format!("there is no known runtime `{name}`"),
            )
            .hint(format!(
                "there is `{}`; any other is given as `{name}=COMMAND {{image}} {{cmd}}`",
                known.join("`, `")
            )));
        }
        runtimes.retain(|(known, _)| known != name);
        runtimes.push((name.to_owned(), template.to_owned()));
    }
    if args.runtimes.is_empty() {
        let path = session.var("PATH").unwrap_or_default();
        for runtime in KNOWN_RUNTIMES.iter().skip(1) {
            if runtime.name == "longshore" || find_program(runtime.name, path).is_some() {
                runtimes.push((runtime.name.to_owned(), runtime.name.to_owned()));
            }
        }
    }
    // A study is repeated from another folder than it was first run in.
    let here = session.cwd.join(&args.image);
    let image = match here.canonicalize() {
        Ok(path) if path.is_dir() => path.display().to_string(),
        _ => args.image.clone(),
    };
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let axis: Vec<String> = runtimes
        .iter()
        .map(|(name, template)| format!("{} = {}", quoted(name), quoted(template)))
        .collect();
    Ok(format!(
        "[study]\n\
         name = \"bench-start\"\n\
         question = \"how long does a container take to start?\"\n\
         [workload]\n\
         kind = \"start\"\n\
         image = {}\n\
         command = {}\n\
         [axes]\n\
         runtime = {{ {} }}\n\
         [run]\n\
         rounds = {}\n\
         reference = {{ runtime = \"host\" }}\n",
        quoted(&image),
        quoted(&args.command),
        axis.join(", "),
        args.runs
    ))
}
