//! What a study is, how it is run, and what becomes of it.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::harness::host::Host;
use crate::harness::plot::Figure;
use crate::harness::provenance::Provenance;
use crate::harness::report::Report;

/// One experiment, in a file named as on the command line.
pub trait Study: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// The figure, table or section that it reproduces: `BRR fig. 8`.
    fn paper(&self) -> &'static str;

    /// The purpose of the study, in a sentence.
    fn about(&self) -> &'static str;

    /// Measures. Shows its progress on standard error.
    ///
    /// # Errors
    /// If the host refuses something without which nothing can be measured. A claim that does not
    /// hold is no error but a finding.
    fn run(&self, options: &Options) -> Result<Report>;
}

/// How studies are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seconds instead of minutes: fewer and smaller points, for continuous integration.
    pub quick: bool,
    /// Print the envelope for programs, one line per study, instead of text.
    pub json: bool,
    /// Where `NAME.json`, `NAME.svg` and `index.html` go.
    pub out_dir: PathBuf,
    /// Where the built guest programs are.
    pub guests_dir: PathBuf,
    /// The calibration profile in force, as reports state it.
    pub profile: Map<String, Value>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quick: false,
            json: false,
            out_dir: "target/study".into(),
            guests_dir: "target/guests".into(),
            profile: Map::new(),
        }
    }
}

/// What became of a study in [`run_all`](crate::run_all).
#[derive(Debug)]
pub struct Outcome {
    /// Its name.
    pub study: &'static str,
    /// Its report, or why there is none.
    pub report: Result<Report>,
}

impl Report {
    /// A report of `study` on this host under the profile of `options`, with nothing in it yet.
    pub fn new(study: &dyn Study, options: &Options) -> Self {
        Self {
            study: study.name(),
            paper: study.paper(),
            about: study.about(),
            measured: Provenance::now(options.quick),
            host: Host::probe(),
            profile: options.profile.clone(),
            rows: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
            figure: Figure::default(),
        }
    }
}
