//! `leasehold study`: figures and tables.

use crate::calibrate::profile_or_calibrate;
use crate::exit::Failure;
use crate::output::{say, tell};
use leasehold_study::{Options, Report};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold study list
  leasehold study deadline --quick --json
  leasehold study all
  leasehold study results

`list` names the studies, and `all` runs them and writes index.html. `results` measures nothing: it
writes a page for each host from the JSON files in --out.

Exit codes: 0 every claim holds; 1 one does not; 70 a study failed; 78 there is no such study.")]
pub(crate) struct Arguments {
    /// A study, or `all`, `list` or `results`.
    name: String,

    /// Take seconds instead of minutes: fewer and smaller points.
    #[arg(long)]
    quick: bool,

    /// Print one line of JSON for each study instead of text.
    #[arg(long)]
    json: bool,

    /// The directory for results.
    #[arg(long, value_name = "DIR", default_value = "target/study")]
    out: PathBuf,

    /// The directory for the pages of `results`.
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    into: PathBuf,

    /// The directory of the guest programs, which `make guests` builds.
    #[arg(long, value_name = "DIR", default_value = "target/guests")]
    guests: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ChildArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn main(arguments: Arguments, profile: Option<&Path>) -> Result<ExitCode, Failure> {
    if arguments.name == "list" {
        for study in leasehold_study::all() {
            tell!(
                "{:<12} {:<22} {}",
                study.name(),
                study.paper(),
                study.about()
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.name == "results" {
        let studies: Vec<_> = leasehold_study::all()
            .iter()
            .map(|study| study.name())
            .collect();
        for page in leasehold_study::results::write(&studies, &arguments.out, &arguments.into)? {
            tell!("{}", page.display());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let study = leasehold_study::find(&arguments.name);
    if study.is_none() && arguments.name != "all" {
        let names: Vec<_> = leasehold_study::all()
            .iter()
            .map(|study| study.name())
            .collect();
        let message = format!(
            "no study {:?}; there are: {}, all, list, results",
            arguments.name,
            names.join(", ")
        );
        return Err(Failure::Configuration(message));
    }
    let (profile, _) = profile_or_calibrate(profile)?;
    let Ok(Value::Object(profile)) = serde_json::to_value(&profile) else {
        return Err(Failure::Host(anyhow::anyhow!(
            "the profile is not an object"
        )));
    };
    let options = Options {
        quick: arguments.quick,
        json: arguments.json,
        out_dir: arguments.out,
        guests_dir: arguments.guests,
        profile,
    };
    let mut out = std::io::stdout().lock();
    let holds = match study {
        Some(study) => leasehold_study::run(study, &options, &mut out)?.holds(),
        None => {
            let outcomes = leasehold_study::run_all(&options, &mut out)?;
            say!("{}", options.out_dir.join("index.html").display());
            if let Some(failed) = outcomes.iter().find(|outcome| outcome.report.is_err()) {
                return Err(Failure::Host(anyhow::anyhow!(
                    "study {} failed",
                    failed.study
                )));
            }
            outcomes
                .iter()
                .all(|outcome| outcome.report.as_ref().is_ok_and(Report::holds))
        }
    };
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

pub(crate) fn child(arguments: ChildArguments) -> Result<ExitCode, Failure> {
    leasehold_study::child::main(arguments.arguments)?;
    Ok(ExitCode::SUCCESS)
}
