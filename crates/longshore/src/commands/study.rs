//! `longshore study`: run, plan, show and list comparisons.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use longshore_bench::{Bench, KINDS, SetupError};
use longshore_host::{Conditions, Host, Session};
use longshore_study::{
    Event, FolderError, Plan, PlanError, Record, Report, ResultFolder, RunError, Setting, Study,
    StudyError, Verdict, WorkloadError, parse_duration, render, select,
};
use serde_json::{Value, json};

use crate::error::{CommandError, DONE, Kind, Status};
use crate::ui::Ui;

/// The studies that are part of the program.
const SHIPPED: &[(&str, &str)] = &[
    (
        "quickstart",
        include_str!("../../../../studies/quickstart.toml"),
    ),
    (
        "start-up",
        include_str!("../../../../studies/start-up.toml"),
    ),
];

/// Compare variants of one workload, with two verdicts and a report
///
/// A study measures one workload in several variants, in interleaved rounds. Its result is a folder
/// with every sample, the study, the machine, and a report page. There are two verdicts: whether a
/// number is a measurement at all, and only then whether it is good enough.
#[derive(Args)]
pub(crate) struct StudyArgs {
    #[command(subcommand)]
    action: StudyAction,
}

#[derive(Subcommand)]
enum StudyAction {
    Run(RunArgs),
    Plan(PlanArgs),
    Show(ShowArgs),
    /// List the studies that are part of the program
    List {
        /// One JSON object a study
        #[arg(long)]
        json: bool,
    },
}

/// Run a study and write its report
///
/// The exit status is 0 where all expectations are met, 1 where one is not, 3 where the study is
/// inconclusive or a number is no measurement.
#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    which: Which,
    /// Folder for the result (default: longshore-results/NAME-TIME)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the plan and stop
    #[arg(long)]
    dry_run: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
    /// Keep what was made for the study (image, server's files) in the result's folder
    #[arg(long)]
    keep: bool,
}

/// Print what a study would do
#[derive(Args)]
struct PlanArgs {
    #[command(flatten)]
    which: Which,
    /// Print the plan as one JSON object
    #[arg(long)]
    json: bool,
}

/// Make the reports of a result again from its samples
#[derive(Args)]
struct ShowArgs {
    /// Folder of the result
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Write the reports anew and print the path of report.html
    #[arg(long, group = "form")]
    html: bool,
    /// Print Markdown
    #[arg(long, group = "form")]
    md: bool,
    /// Print comma-separated values in base units
    #[arg(long, group = "form")]
    csv: bool,
    /// Print one JSON object
    #[arg(long, group = "form")]
    json: bool,
}

/// A study, narrowed or changed.
#[derive(Args)]
struct Which {
    /// Study file, or the name of a shipped study (see `longshore study list`)
    #[arg(value_name = "FILE|NAME")]
    study: String,
    /// Rounds, instead of those of the study
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Time after which no further round begins, such as `90s`
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    budget: Option<Duration>,
    /// Measure only these labels of an axis; can be given for several axes
    #[arg(long, value_name = "AXIS=LABEL[,LABEL]")]
    set: Vec<String>,
    /// Image to use instead of the one that the study makes or names
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
}

pub(crate) fn run(ui: &mut Ui, args: &StudyArgs) -> Result<Status, CommandError> {
    match &args.action {
        StudyAction::Run(args) => run_study(ui, args),
        StudyAction::Plan(args) => {
            let study = args.which.read()?;
            tell_plan(ui, &study, args.json)
        }
        StudyAction::Show(args) => show(ui, args),
        StudyAction::List { json } => list(ui, *json),
    }
}

fn run_study(ui: &mut Ui, args: &RunArgs) -> Result<Status, CommandError> {
    let study = args.which.read()?;
    if args.dry_run {
        return tell_plan(ui, &study, args.json);
    }
    let settings = Settings {
        out: args.out.clone(),
        json: args.json,
        keep: args.keep,
        changes: args.which.changes(),
    };
    measure(ui, &study, &settings)
}

/// How a study is carried out, apart from what it says itself.
pub(crate) struct Settings {
    /// Folder of the result.
    pub(crate) out: Option<PathBuf>,
    /// Tell the outcome as JSON.
    pub(crate) json: bool,
    /// Keep the work folder.
    pub(crate) keep: bool,
    /// What the command line changed, for the record.
    pub(crate) changes: Vec<(String, String)>,
}

/// Measures a study, writes its result and tells it.
pub(crate) fn measure(
    ui: &mut Ui,
    study: &Study,
    settings: &Settings,
) -> Result<Status, CommandError> {
    let session = Session::probe().map_err(|error| cannot(&error))?;
    let longshore = std::env::current_exe().map_err(|error| {
        CommandError::new(
            Kind::HostCannot,
            format!("cannot tell where this program lies: {error}"),
        )
    })?;
    let path = match &settings.out {
        Some(out) => session.cwd.join(out),
        None => session.cwd.join(default_folder(&study.name)),
    };
    let folder = ResultFolder::create(&path).map_err(folder_error)?;
    let conditions = Conditions::probe();
    warn_of_load(ui, &conditions);
    let host = json!({ "conditions": conditions, "host": Host::probe() });
    folder
        .write("study.toml", &study.text)
        .map_err(folder_error)?;
    folder
        .write("host.json", &format!("{host:#}\n"))
        .map_err(folder_error)?;
    let work = WorkFolder::make(folder.file("work"), settings.keep)?;

    let teller = RefCell::new(&mut *ui);
    let tell = |line: &str| teller.borrow_mut().progress_line(line);
    let bench = Bench {
        session: &session,
        longshore: &longshore,
        work: &work.path,
        tell: &tell,
    };
    let mut workload = longshore_bench::build(study, bench).map_err(setup_error)?;
    let plan = Plan::new(study, &workload.metrics()).map_err(|error| plan_error(&error))?;
    let mut journal = folder.journal().map_err(folder_error)?;
    for (name, text) in &settings.changes {
        let (name, text) = (name.clone(), text.clone());
        journal
            .add(Record::Fact { name, text })
            .map_err(folder_error)?;
    }
    let mut progress = Progress::new(&teller, &plan);
    let outcome = longshore_study::run(
        study,
        &plan,
        concat!("longshore ", env!("CARGO_PKG_VERSION")),
        workload.as_mut(),
        &mut journal,
        &mut |event| progress.tell(&event),
    );
    progress.clear();
    // Servers and held signals end with the workload, before anything is told.
    drop(workload);
    drop(work);

    let report = Report::new(study, journal.records(), host);
    let page = write_reports(&folder, &report)?;
    match outcome {
        Ok(()) => {}
        Err(RunError::Workload(WorkloadError::Interrupted { signal })) => {
            ui.notice(&format!(
                "stopped by signal {signal}; the samples so far are in {}",
                folder.path().display()
            ));
            return Ok(Status(u8::try_from(128 + signal).unwrap_or(1)));
        }
        Err(error) => {
            let error = CommandError::from_error(Kind::Failed, &error);
            return Err(error.context(format!(
                "the samples so far are in {}",
                folder.path().display()
            )));
        }
    }
    if settings.json {
        ui.json(&report)?;
    } else {
        ui.result(&render::text(&report))?;
        ui.result(&format!("\nreport: {}", page.display()))?;
    }
    Ok(status(report.verdict))
}

/// Tells beforehand that times will scatter, while the user can still wait for a quieter hour.
fn warn_of_load(ui: &mut Ui, conditions: &Conditions) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(load) = conditions.load_1min.filter(|load| *load > cpus as f64) {
        ui.warning(&format!(
            "this machine is busy (load {load:.1} on {cpus} CPUs): times will scatter, and more \
             rounds may be needed"
        ));
    }
}

/// `longshore-results/<study>-<time>`, below the current folder.
fn default_folder(name: &str) -> PathBuf {
    let time = jiff::Timestamp::now()
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    Path::new("longshore-results").join(format!("{name}-{time}"))
}

fn status(verdict: Verdict) -> Status {
    match verdict {
        Verdict::Pass | Verdict::NothingExpected => DONE,
        Verdict::Below => Kind::Failed.status(),
        Verdict::Inconclusive | Verdict::Invalid => Kind::Partial.status(),
    }
}

fn write_reports(folder: &ResultFolder, report: &Report) -> Result<PathBuf, CommandError> {
    let broken = |error: &dyn std::error::Error| CommandError::from_error(Kind::Failed, error);
    let json = render::json(report).map_err(|error| broken(&error))?;
    let html = render::html(report).map_err(|error| broken(&error))?;
    for (name, content) in [
        ("report.md", render::markdown(report)),
        ("report.csv", render::csv(report)),
        ("report.json", json),
    ] {
        folder.write(name, &content).map_err(folder_error)?;
    }
    folder.write("report.html", &html).map_err(folder_error)
}

fn show(ui: &mut Ui, args: &ShowArgs) -> Result<Status, CommandError> {
    let folder = ResultFolder::open(&args.folder);
    let records = folder.records().map_err(folder_error)?;
    let text = folder.read("study.toml").map_err(folder_error)?;
    let name = folder.file("study.toml").display().to_string();
    let study = Study::parse(&name, &text, KINDS).map_err(|error| study_error(&error))?;
    // A result without its machine still has its samples.
    let host = folder
        .read("host.json")
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or(Value::Null);
    let report = Report::new(&study, &records, host);
    if args.html {
        let page = write_reports(&folder, &report)?;
        ui.result(&page.display().to_string())?;
    } else if args.md {
        ui.result(&render::markdown(&report))?;
    } else if args.csv {
        ui.result(&render::csv(&report))?;
    } else if args.json {
        ui.json(&report)?;
    } else {
        ui.result(&render::text(&report))?;
    }
    Ok(DONE)
}

fn list(ui: &mut Ui, json: bool) -> Result<Status, CommandError> {
    for (name, text) in SHIPPED {
        let study = Study::parse(name, text, KINDS).map_err(|error| study_error(&error))?;
        if json {
            ui.json(&json!({
                "type": "study", "name": study.name, "question": study.question,
                "about": study.about,
            }))?;
        } else {
            ui.result(&format!("{:12} {}", study.name, study.question))?;
        }
    }
    Ok(DONE)
}

fn tell_plan(ui: &mut Ui, study: &Study, json: bool) -> Result<Status, CommandError> {
    let session = Session::probe().map_err(|error| cannot(&error))?;
    let bench = Bench {
        session: &session,
        longshore: Path::new("longshore"),
        work: Path::new("work"),
        tell: &|_| {},
    };
    let workload = longshore_bench::build(study, bench).map_err(setup_error)?;
    let plan = Plan::new(study, &workload.metrics()).map_err(|error| plan_error(&error))?;
    if json {
        ui.json(&plan)?;
    } else {
        ui.result(&plan_text(study, &plan))?;
    }
    Ok(DONE)
}

fn plan_text(study: &Study, plan: &Plan) -> String {
    let mut text = format!("{}: {}\n\n", study.name, study.question);
    text.push_str(&format!(
        "workload {}: {} variants, a warm-up and {} rounds, {} measurements; no round begins after \
         {:.0} s\n",
        study.workload.kind,
        plan.variants.len(),
        plan.rounds,
        plan.measurements,
        plan.budget_s
    ));
    for variant in &plan.variants {
        text.push_str(&format!("  {variant}\n"));
    }
    text.push_str("order of the first rounds:\n");
    for round in 1..=plan.rounds.min(3) {
        let order: Vec<String> = plan
            .order(round)
            .into_iter()
            .map(|index| plan.variants[index].labels())
            .collect();
        text.push_str(&format!("  {round}: {}\n", order.join(", ")));
    }
    text.push_str("smallest difference that the rounds can show:\n");
    for resolvable in &plan.resolvable {
        text.push_str(&format!(
            "  {:4.1} % where single runs scatter by {:.0} %\n",
            resolvable.difference * 100.0,
            resolvable.cv * 100.0
        ));
    }
    for expectation in &study.expectations {
        let relation = expectation
            .relative_to
            .as_ref()
            .map(|reference| format!(" of {}", reference.labels()))
            .unwrap_or_default();
        text.push_str(&format!(
            "expected: {} {} {}{relation}, tolerance {:+.0} %: {}\n",
            expectation.when.labels(),
            expectation.metric,
            expectation.value_text,
            expectation.tolerance * 100.0,
            expectation.why
        ));
    }
    text
}

impl Which {
    /// Reads the study and applies what the command line changes.
    fn read(&self) -> Result<Study, CommandError> {
        // A file of a shipped study's name is reached as `./NAME`.
        let shipped = SHIPPED.iter().find(|(name, _)| *name == self.study);
        let text = match shipped {
            Some((_, text)) => (*text).to_owned(),
            None => self.read_file()?,
        };
        let mut study =
            Study::parse(&self.study, &text, KINDS).map_err(|error| study_error(&error))?;
        if let Some(rounds) = self.rounds {
            study.run.rounds = rounds;
        }
        if let Some(budget) = self.budget {
            study.run.budget = budget;
        }
        for set in &self.set {
            let (axis, labels) = set.split_once('=').ok_or_else(|| {
                CommandError::new(Kind::Usage, format!("`--set {set}` is not AXIS=LABEL"))
                    .hint("for instance `--set where=host,container`")
            })?;
            let labels: Vec<&str> = labels.split(',').collect();
            select(&mut study, axis, &labels).map_err(|error| plan_error(&error))?;
        }
        if let Some(image) = &self.image {
            let kind = KINDS.iter().find(|kind| kind.name == study.workload.kind);
            if !kind.is_some_and(|kind| kind.keys.contains(&"image")) {
                return Err(CommandError::new(
                    Kind::Usage,
                    format!("the study `{}` uses no image", study.name),
                ));
            }
            study.workload.settings.retain(|(name, _)| name != "image");
            let image = Setting::Text(image.clone());
            study.workload.settings.push(("image".to_owned(), image));
            // The other tasks are the host's own programs, which another image does not have.
            let narrowed = self.set.iter().any(|set| set.starts_with("task="));
            if study.workload.kind == "parity" && !narrowed {
                select(&mut study, "task", &["start-up"]).map_err(|error| plan_error(&error))?;
            }
        }
        Ok(study)
    }

    fn read_file(&self) -> Result<String, CommandError> {
        fs::read_to_string(&self.study).map_err(|error| {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            CommandError::new(
                Kind::Usage,
                format!("cannot read the study `{}`: {error}", self.study),
            )
            .hint(format!("shipped studies are `{}`", names.join("`, `")))
        })
    }

    fn changes(&self) -> Vec<(String, String)> {
        let mut changes: Vec<(String, String)> = Vec::new();
        let mut add = |option: &str, value: String| {
            changes.push((format!("option --{option}"), value));
        };
        if let Some(rounds) = self.rounds {
            add("rounds", rounds.to_string());
        }
        if let Some(budget) = self.budget {
            add("budget", format!("{} s", budget.as_secs_f64()));
        }
        for set in &self.set {
            add("set", set.clone());
        }
        if let Some(image) = &self.image {
            add("image", image.clone());
        }
        changes
    }
}

/// The folder of what is made for a study; gone when the study ends.
struct WorkFolder {
    path: PathBuf,
    keep: bool,
}

impl WorkFolder {
    fn make(path: PathBuf, keep: bool) -> Result<WorkFolder, CommandError> {
        // All that is in it is removed at the end, so it must be new.
        fs::create_dir(&path).map_err(|error| {
            CommandError::new(
                Kind::Failed,
                format!("cannot make the folder {}: {error}", path.display()),
            )
        })?;
        Ok(WorkFolder { path, keep })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed lies in the result's folder, in sight of the user.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Progress on a terminal as one line drawn over itself; elsewhere a plain line now and then.
struct Progress<'p, 'u> {
    ui: &'p RefCell<&'u mut Ui>,
    bar: Option<indicatif::ProgressBar>,
    round: u32,
}

impl<'p, 'u> Progress<'p, 'u> {
    fn new(ui: &'p RefCell<&'u mut Ui>, plan: &Plan) -> Progress<'p, 'u> {
        let bar = ui.borrow().draws_progress().then(|| {
            let bar = indicatif::ProgressBar::new(plan.measurements);
            if let Ok(style) = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")
            {
                bar.set_style(style);
            }
            bar
        });
        Progress { ui, bar, round: 0 }
    }

    fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::Preparing(variant) => {
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("warm-up: {}", variant.labels()));
                }
            }
            Event::Unavailable(variant, reason) => {
                self.say(&format!("{}: not measured: {reason}", variant.labels()));
            }
            Event::Failed(variant, reason) => {
                self.say(&format!("{}: no measurement: {reason}", variant.labels()));
            }
            Event::Measuring {
                round,
                rounds,
                variant,
                done,
                planned,
            } => {
                if let Some(bar) = &self.bar {
                    bar.set_length((*planned).max(*done + 1));
                    bar.set_position(*done);
                    bar.set_message(format!(
                        "{}: {}",
                        round_text(*round, *rounds),
                        variant.labels()
                    ));
                } else if *round != self.round && (*round == 1 || round.is_multiple_of(5)) {
                    self.say(&round_text(*round, *rounds));
                }
                self.round = *round;
            }
            Event::Extending(open) => {
                let plural = if *open == 1 { " is" } else { "s are" };
                self.say(&format!(
                    "{open} expectation{plural} not settled yet; measuring on within the time budget"
                ));
            }
            Event::Ended(_) => {}
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.ui.borrow_mut().progress_line(line)),
            None => self.ui.borrow_mut().progress_line(line),
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn round_text(round: u32, planned: u32) -> String {
    if round <= planned {
        format!("round {round} of {planned}")
    } else {
        format!("round {round}, beyond the planned {planned}")
    }
}

fn folder_error(error: FolderError) -> CommandError {
    let told = CommandError::from_error(Kind::Failed, &error);
    match error {
        FolderError::Write { .. } => told.hint("choose another place with `--out DIR`"),
        FolderError::Occupied { .. } => told.hint(
            "choose another folder, or make its report again with `longshore study show DIR`",
        ),
        FolderError::Read { .. } | FolderError::Record { .. } | FolderError::TooNew { .. } => told,
    }
}

fn cannot(error: &dyn std::error::Error) -> CommandError {
    CommandError::from_error(Kind::HostCannot, error)
}

pub(crate) fn study_error(error: &StudyError) -> CommandError {
    CommandError::from_error(Kind::Usage, error)
}

fn setup_error(error: SetupError) -> CommandError {
    let kind = match error {
        SetupError::Setting(_) => Kind::Usage,
        SetupError::Machine(_) => Kind::HostCannot,
    };
    CommandError::from_error(kind, &error)
}

fn plan_error(error: &PlanError) -> CommandError {
    CommandError::from_error(Kind::Usage, error)
}
