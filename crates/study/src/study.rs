//! Studies: which there are, and how they are run.

use std::fs;
use std::io::Write;

use anyhow::{Context, Result};

use crate::harness::page;
use crate::harness::report::Report;
use crate::memory::media::Media;
use crate::memory::memory_speed::MemorySpeed;
use crate::memory::paging_cost::PagingCost;
use crate::memory::reserve_size::ReserveSize;
use crate::memory::sharing::Sharing;
use crate::processor::batching::Batching;
use crate::processor::decide::Decide;
use crate::processor::herd::Herd;
use crate::processor::interference::Interference;
use crate::processor::jobs::Jobs;
use crate::processor::preempt::Preempt;
use crate::processor::storm::Storm;
use crate::reclaim::alloc::Alloc;
use crate::reclaim::bulk::Bulk;
use crate::reclaim::calls::Calls;
use crate::reclaim::deadline::Deadline;
use crate::reclaim::freshness::Freshness;
use crate::reclaim::kill::Kill;
use crate::reclaim::processes::Processes;
use crate::reclaim::rogue::Rogue;
use crate::reclaim::startup::Startup;
use crate::reclaim::teardown_pages::TeardownPages;
use crate::serving::cold::Cold;
use crate::serving::noisy::Noisy;
use crate::serving::overload::Overload;
use crate::serving::serve::Serve;

pub(crate) use crate::harness::experiment::{Options, Outcome, Study};

/// Every study, in the order of the page.
pub fn all() -> &'static [&'static dyn Study] {
    &[
        &Processes,
        &Bulk,
        &TeardownPages,
        &Alloc,
        &Startup,
        &Calls,
        &Serve,
        &Overload,
        &Noisy,
        &Cold,
        &Deadline,
        &Kill,
        &Rogue,
        &Freshness,
        &Jobs,
        &Interference,
        &Batching,
        &Herd,
        &Storm,
        &Decide,
        &Preempt,
        &Sharing,
        &ReserveSize,
        &PagingCost,
        &MemorySpeed,
        &Media,
    ]
}

/// The study of this name.
pub fn find(name: &str) -> Option<&'static dyn Study> {
    all().iter().copied().find(|study| study.name() == name)
}

/// Runs one study, leaves `NAME.json` and `NAME.svg` in the output directory and prints the report
/// to `out`.
///
/// # Errors
/// If the study fails or its results cannot be written.
pub fn run(study: &dyn Study, options: &Options, out: &mut dyn Write) -> Result<Report> {
    let report = study
        .run(options)
        .with_context(|| format!("study {}", study.name()))?;
    let directory = &options.out_dir;
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let write = |extension: &str, content: String| {
        let path = directory.join(report.study).with_extension(extension);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))
    };
    write("json", format!("{:#}\n", report.to_json()))?;
    write("svg", report.figure.to_svg()?)?;
    if options.json {
        writeln!(out, "{}", report.to_json())?;
    } else {
        writeln!(out, "{}", report.to_text())?;
    }
    Ok(report)
}

/// Runs every study and writes the page `index.html` with all of them. A study that fails does not
/// keep the others from running; the page says why it failed.
///
/// # Errors
/// If the page cannot be written.
pub fn run_all(options: &Options, out: &mut dyn Write) -> Result<Vec<Outcome>> {
    run_each(all(), options, out)
}

fn run_each(
    studies: &[&'static dyn Study],
    options: &Options,
    out: &mut dyn Write,
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for study in studies {
        let report = run(*study, options, out);
        if let Err(error) = &report {
            tracing::error!("{error:#}");
        }
        outcomes.push(Outcome {
            study: study.name(),
            report,
        });
    }
    let path = options.out_dir.join("index.html");
    fs::create_dir_all(&options.out_dir)
        .and_then(|()| fs::write(&path, page::render(&outcomes)))
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::{Options, Study, all, find, run_each};
    use crate::harness::report::{Report, row};
    use std::collections::BTreeSet;

    struct Good;
    struct Bad;

    impl Study for Good {
        fn name(&self) -> &'static str {
            "good"
        }
        fn paper(&self) -> &'static str {
            "none"
        }
        fn about(&self) -> &'static str {
            "Succeeds."
        }
        fn run(&self, options: &Options) -> anyhow::Result<Report> {
            let mut report = Report::new(self, options);
            report
                .rows
                .push(row([("pairs", 7.into()), ("what", "<b>".into())]));
            Ok(report)
        }
    }

    impl Study for Bad {
        fn name(&self) -> &'static str {
            "bad"
        }
        fn paper(&self) -> &'static str {
            "none"
        }
        fn about(&self) -> &'static str {
            "Fails."
        }
        fn run(&self, _: &Options) -> anyhow::Result<Report> {
            anyhow::bail!("the host has no <such thing>")
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        let names: BTreeSet<&str> = all().iter().map(|study| study.name()).collect();
        assert_eq!(names.len(), all().len());
        assert!(
            names
                .iter()
                .all(|name| find(name).is_some_and(|study| study.name() == *name))
        );
        assert!(find("no such study").is_none());
    }

    #[test]
    fn a_failing_study_is_told_of_and_does_not_stop_the_others() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let options = Options {
            json: true,
            out_dir: directory.path().join("new"),
            ..Options::default()
        };
        let mut out = Vec::new();
        let outcomes = run_each(&[&Bad, &Good], &options, &mut out).expect("page written");
        assert!(outcomes[0].report.is_err() && outcomes[1].report.is_ok());

        let printed: serde_json::Value = serde_json::from_slice(&out).expect("one JSON document");
        assert_eq!(printed["rows"][0]["pairs"], 7);
        let kept = std::fs::read(options.out_dir.join("good.json")).expect("kept");
        assert_eq!(
            printed,
            serde_json::from_slice::<serde_json::Value>(&kept).expect("JSON")
        );
        assert!(options.out_dir.join("good.svg").exists());

        let page = std::fs::read_to_string(options.out_dir.join("index.html")).expect("page");
        assert!(page.contains("the host has no &lt;such thing&gt;") && page.contains("&lt;b&gt;"));
        assert!(page.contains("Succeeds.") && page.contains("<svg"));
    }
}
