//! Progress of a long measurement, on standard error so that standard output stays the report.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a line is written where there is no terminal to draw a bar on.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A bar on a terminal; elsewhere (a log of continuous integration) a plain line every few
/// seconds. Cleared when dropped, by an error too.
pub struct Progress {
    name: &'static str,
    bar: ProgressBar,
    /// When the last line was written; `None` on a terminal.
    last_line: Option<Instant>,
}

impl Progress {
    /// Starts to show `steps` steps of the study `name`.
    pub fn new(name: &'static str, steps: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{prefix:>12} {wide_bar} {pos}/{len} {eta} {msg}")
            .expect("the template is well-formed");
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_style(style);
        bar.set_prefix(name);
        Self {
            name,
            bar,
            last_line: (!terminal).then(Instant::now),
        }
    }

    /// Shows what is being measured now.
    pub fn at(&self, what: impl Into<Cow<'static, str>>) {
        self.bar.set_message(what);
    }

    /// One step is done. Costs about a microsecond: count batches, not single operations.
    pub fn step(&mut self) {
        self.bar.inc(1);
        let Some(last_line) = &mut self.last_line else {
            return;
        };
        if last_line.elapsed() >= LINE_INTERVAL {
            *last_line = Instant::now();
            let (position, length) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!("{}: {position}/{length} {}", self.name, self.bar.message());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
