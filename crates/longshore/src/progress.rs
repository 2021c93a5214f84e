//! How the progress of a pull looks: one bar on a terminal, a line now and then elsewhere.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longshore_image::{Event, Progress};

use crate::ui::Ui;

/// Without a terminal a line is written this often: often enough to see life in a job log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows the events of a pull.
///
/// Nothing is drawn by a thread of its own: a caller may make namespaces afterwards.
pub(crate) struct PullProgress<'u> {
    shown: Mutex<Shown<'u>>,
}

struct Shown<'u> {
    ui: &'u mut Ui,
    bar: Option<ProgressBar>,
    total_bytes: u64,
    done_bytes: u64,
    layers_count: usize,
    unpacked_count: usize,
    last_line: Instant,
}

impl<'u> PullProgress<'u> {
    pub(crate) fn new(ui: &'u mut Ui) -> PullProgress<'u> {
        PullProgress {
            shown: Mutex::new(Shown {
                ui,
                bar: None,
                total_bytes: 0,
                done_bytes: 0,
                layers_count: 0,
                unpacked_count: 0,
                last_line: Instant::now(),
            }),
        }
    }

    /// Takes the bar off the terminal.
    pub(crate) fn finish(&self) {
        if let Some(bar) = self.shown.lock().expect("no holder panics").bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Shown<'_> {
    fn aside(&mut self, say: impl FnOnce(&mut Ui)) {
        let Shown { ui, bar, .. } = self;
        match bar {
            Some(bar) => bar.suspend(|| say(ui)),
            None => say(ui),
        }
    }

    fn line(&mut self) {
        if self.bar.is_some() || self.last_line.elapsed() < LINE_EVERY {
            return;
        }
        self.last_line = Instant::now();
        let text = format!(
            "{} of {} here, {} of {} layers unpacked",
            HumanBytes(self.done_bytes),
            HumanBytes(self.total_bytes),
            self.unpacked_count,
            self.layers_count
        );
        self.ui.progress_line(&text);
    }
}

impl Progress for PullProgress<'_> {
    fn event(&self, event: Event) {
        let mut shown = self.shown.lock().expect("no holder panics");
        let shown = &mut *shown;
        match event {
            Event::Waiting { what } => shown.aside(|ui| {
                ui.notice(&format!(
                    "another command is working on {what}; waiting for it"
                ));
            }),
            Event::Layers {
                layer_bytes,
                here_bytes,
            } => {
                shown.total_bytes = layer_bytes.iter().sum();
                shown.done_bytes = here_bytes.iter().sum();
                shown.layers_count = layer_bytes.len();
                shown.unpacked_count = 0;
                let resumed = HumanBytes(shown.done_bytes);
                if shown.done_bytes > 0 {
                    let text = format!(
                        "{resumed} of {} are here already",
                        HumanBytes(shown.total_bytes)
                    );
                    shown.aside(|ui| ui.detail(&text));
                }
                if shown.ui.draws_progress() {
                    let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg}";
                    let bar = ProgressBar::with_draw_target(
                        Some(shown.total_bytes),
                        ProgressDrawTarget::stderr_with_hz(10),
                    );
                    if let Ok(style) = ProgressStyle::with_template(style) {
                        bar.set_style(style);
                    }
                    bar.set_position(shown.done_bytes);
                    shown.bar = Some(bar);
                }
            }
            Event::Fetched { fetched_bytes, .. } => {
                shown.done_bytes += fetched_bytes;
                if let Some(bar) = &shown.bar {
                    bar.set_position(shown.done_bytes);
                }
                shown.line();
            }
            Event::Unpacked { .. } => {
                shown.unpacked_count += 1;
                if let Some(bar) = &shown.bar {
                    bar.set_message(format!(
                        "{}/{} layers unpacked",
                        shown.unpacked_count, shown.layers_count
                    ));
                }
                shown.line();
            }
            Event::Retrying { why, after } => shown.aside(|ui| {
                ui.notice(&format!(
                    "{why}; trying again in {:.1} s",
                    after.as_secs_f64()
                ));
            }),
            Event::Notice(text) => shown.aside(|ui| ui.notice(&text)),
            Event::Detail(text) => shown.aside(|ui| ui.detail(&text)),
        }
    }
}
