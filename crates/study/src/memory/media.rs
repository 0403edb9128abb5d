//! `media`: the mutual interference of three players that share a decoder's tables and a film (SPC
//! §VI-C, fig. 10 and 11, table IV).
//!
//! A real decoder (motion JPEG, compiled to WebAssembly) gets ready once; three tenants run from
//! the image of its memory, copy on write, under reservations of different sizes, and play the same
//! film. The first has frames for all that it uses, the others page. Their evictions cause faults
//! of the first, unless shared pages are managed; then the paper's rule picks SPC or SPEL for each
//! part of the image.

mod image;
mod player;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use leasehold_pager::{AreaId, Contract, Refused, Sharing, Technique, Usage};
use leasehold_pager_linux::{Error, Features, Paging};
use rustix::fs::OFlags;

use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::priority::on_a_thread_like_a_cells;
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, row};
use crate::harness::samples::Samples;
use crate::harness::unit::Unit;
use crate::memory::paging::{Space, exactly};
use image::{Image, Part};
use leasehold_reclaim::PAGE;
use player::{Decoder, Player, REACH};

/// The study; see the [module](self).
pub(crate) struct Media;

/// Frames of the film.
const FRAMES: u32 = 24;
/// Periods of the players in milliseconds: 30 pictures a second twice, and 5 (SPC §VI-C).
const PERIODS_MS: [u64; 3] = [33, 33, 200];
/// Hundredths of what a player uses that each has frames for.
const SHARES: [u32; 3] = [110, 60, 50];
/// Places in the swap file beyond one for each copied page.
const SPARE: u32 = 64;
/// Pages that are mapped ahead, as in a cell.
const AHEAD: u32 = 16;
/// The largest ratio of the first player's median frame beside the others to that alone.
const DISTURBED: f64 = 1.1;
/// The same without management, for there to be something to show: on a slower disk it is more.
const SLOWED: f64 = 1.25;
/// The number of faults that the first player must have without management, so that the comparison
/// shows an effect.
const MISSING: f64 = 100.0;

/// The players, and the management of their shared pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The first player alone.
    Alone,
    /// All three without shared-page management.
    None,
    /// All three, with SPC or SPEL for each part.
    Managed,
}

impl Way {
    const ALL: [Way; 3] = [Way::Alone, Way::None, Way::Managed];

    /// As rows name it.
    const fn name(self) -> &'static str {
        match self {
            Way::Alone => "alone",
            Way::None => "none",
            Way::Managed => "managed",
        }
    }

    const fn sharing(self) -> Sharing {
        match self {
            Way::None => Sharing::Plain,
            Way::Alone | Way::Managed => Sharing::Conserve,
        }
    }

    const fn players(self) -> usize {
        match self {
            Way::Alone => 1,
            Way::None | Way::Managed => 3,
        }
    }
}

/// A frame of the first player.
struct Frame {
    ns: u64,
    major: u64,
}

/// A part of the image that is only read: how much of it players use, and what the rule says
/// (SPC table IV).
struct Choice {
    part: Part,
    usage: Usage,
    technique: Option<Technique>,
    /// Whether the part was locked, if the rule says so; reservations may be too small for it.
    locked: bool,
}

/// The result of playing in one way.
struct Played {
    way: Way,
    /// Of the first player, from its first.
    frames: Vec<Frame>,
    /// Frames that the first player used.
    used: u32,
    /// Major faults of the others.
    others: u64,
    choices: Vec<Choice>,
}

impl Study for Media {
    fn name(&self) -> &'static str {
        "media"
    }

    fn paper(&self) -> &'static str {
        "SPC fig. 10 and 11, table IV"
    }

    fn about(&self) -> &'static str {
        "Three players of one film, in a real decoder that they share: time of each frame of the \
         first, alone and beside two that page, without and with shared-page management."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let mut report = Report::new(self, options);
        let frames = if options.quick { 3 } else { 12 } * FRAMES as usize;
        let played = match Features::probe() {
            Ok(_) => measure(self.name(), frames, options)?,
            Err(unsupported) => {
                report.notes.push(format!("not measured: {unsupported}"));
                Vec::new()
            }
        };
        for played in &played {
            report
                .rows
                .extend(played.frames.iter().enumerate().map(|(at, frame)| {
                    row([
                        ("technique", played.way.name().into()),
                        ("frame", at.into()),
                        ("frame_ns", frame.ns.into()),
                        ("major_faults", frame.major.into()),
                        ("platform", "linux".into()),
                    ])
                }));
            report.notes.extend(played.choices.iter().map(Choice::note));
            if played.way != Way::Alone {
                report.notes.push(format!(
                    "{}: the other two have {} major faults",
                    played.way.name(),
                    Unit::Count.humane(played.others as f64)
                ));
            }
        }
        report.findings = findings(&played).into();
        report.notes.push(format!(
            "a film of {FRAMES} pictures of 640 × 360, drawn and encoded by the decoder's program \
             before its image is taken; players decode in the order in which frames are due, 30, \
             30 and 5 a second, in one thread that serves \
             their faults; every decoded picture is compared"
        ));
        report.notes.push(format!(
            "reservations: {SHARES:?} hundredths of the {} that a player uses; parts that are \
             written to are copied and then a tenant's own; pages of the image are read past the \
             page cache",
            Unit::Bytes.humane(
                played
                    .first()
                    .map_or(0.0, |alone| { f64::from(alone.used) * PAGE as f64 })
            )
        ));
        report.figure = figure(&played);
        Ok(report)
    }
}

fn measure(name: &'static str, frames: usize, options: &Options) -> Result<Vec<Played>> {
    fs::create_dir_all(&options.out_dir)
        .with_context(|| format!("creating {}", options.out_dir.display()))?;
    let path = options.guests_dir.join("film.wasm");
    let program = fs::read(&path)
        .with_context(|| format!("reading {} (guests/build makes it)", path.display()))?;
    let image = Image::take(&program, FRAMES)?;
    let decoder = Decoder::new(&image)?;
    let mut progress = Progress::new(name, Way::ALL.len() as u64);
    let mut all: Vec<Played> = Vec::new();
    for way in Way::ALL {
        // The first plays alone, with room for everything, and shows how much a player uses.
        let all_of_it = all.first().map_or(image.pages() as u32, |alone| alone.used);
        let reserved = SHARES.map(|share| all_of_it * share / 100);
        let reserved = &reserved[..way.players()];
        progress.at(way.name());
        let (played, _) = on_a_thread_like_a_cells(|| {
            let stage = Stage {
                image: &image,
                decoder: &decoder,
                reserved,
            };
            stage.play(way, frames, &options.out_dir)
        })?;
        all.push(played);
        progress.step();
    }
    Ok(all)
}

/// The film, the players, and their reservations.
struct Stage<'a> {
    image: &'a Image,
    decoder: &'a Decoder,
    /// Frames of the players' reservations.
    reserved: &'a [u32],
}

impl Stage<'_> {
    /// Plays `frames` frames of the first player, and what the others play meanwhile.
    fn play(&self, way: Way, frames: usize, directory: &Path) -> Result<Played> {
        let Stage {
            image,
            decoder,
            reserved,
        } = *self;
        let whole = image.pages() as u32;
        let node = whole + reserved.iter().sum::<u32>();
        let swap = whole * reserved.len() as u32 + SPARE;
        let space = Space::open(node, swap, directory, AHEAD)?;
        let paging = space.paging();
        let mut areas = Vec::new();
        for part in &image.parts {
            areas.push(paging.create_image(stored(image, part, directory)?, way.sharing())?);
        }
        let mut players = Vec::new();
        for &frames in reserved {
            let id = paging.reserve(&Contract::hard(frames))?;
            let range = space.range((REACH / PAGE as u64) as u32)?;
            for (part, &area) in image.parts.iter().zip(&areas) {
                let pages = part.pages.len() as u32;
                let copies = paging.create_area(pages, Sharing::Conserve)?;
                range.attach_copied(id, area, copies, pages)?;
            }
            players.push(Player::start(decoder, image, range, id)?);
        }

        let read = image.parts.iter().zip(&areas).filter(|(part, _)| part.read);
        let mut choices: Vec<(Choice, AreaId)> = read
            .map(|(part, &area)| (Choice::new(part.clone()), area))
            .collect();
        let major = |player: &Player<'_>| paging.counts(player.id).map(|counts| counts.major);
        let mut shown = Vec::new();
        let mut next = [0; PERIODS_MS.len()];
        while shown.len() < frames {
            // By the time at which it is due; of those at the same time, the first.
            let due = |at: &usize| next[*at] * PERIODS_MS[*at];
            let at = (0..players.len()).min_by_key(due).context("no players")?;
            next[at] += 1;
            let before = major(&players[at])?;
            let ns = players[at].play()?;
            space.denied()?;
            if at > 0 {
                continue;
            }
            let major = major(&players[0])? - before;
            shown.push(Frame { ns, major });
            // Once the first has seen the film, it is known how much of it they use in that time.
            if shown.len() <= FRAMES as usize {
                for (choice, area) in &mut choices {
                    choice.usage = paging.observe(*area)?;
                }
            }
            if shown.len() == FRAMES as usize && way == Way::Managed {
                for (choice, area) in &mut choices {
                    choice.decide(paging, *area)?;
                }
            }
        }
        let others = players[1..].iter().map(major);
        let others = others.sum::<Result<u64, _>>()?;
        if way != Way::Managed {
            choices.clear();
        }
        let account = paging.account(players[0].id)?;
        Ok(Played {
            way,
            frames: shown,
            used: account.size - account.free,
            others,
            choices: choices.into_iter().map(|(choice, _)| choice).collect(),
        })
    }
}

/// A part of the image in a file that is read past the page cache, and has lost its name.
fn stored(image: &Image, part: &Part, directory: &Path) -> Result<File> {
    let content = &image.memory[part.pages.start * PAGE..part.pages.end * PAGE];
    let mut file = tempfile::NamedTempFile::new_in(directory).context("a file for the image")?;
    file.write_all(content).context("writing the image")?;
    file.as_file().sync_all().context("writing the image")?;
    let direct = OFlags::DIRECT.bits().cast_signed();
    let opened = File::options()
        .read(true)
        .custom_flags(direct)
        .open(file.path());
    opened.context("opening the image for direct input")
}

impl Choice {
    fn new(part: Part) -> Self {
        Self {
            part,
            usage: Usage::default(),
            technique: None,
            locked: false,
        }
    }

    /// Has a part managed as the rule says. It is conserved (SPC) until then, and stays so if a
    /// reservation has no room for all of it.
    ///
    /// # Errors
    /// The pager's.
    fn decide(&mut self, paging: &Paging, area: AreaId) -> Result<()> {
        self.technique = self.usage.choice(self.part.pages.len() as u32);
        if self.technique == Some(Technique::Spel) {
            self.locked = match paging.lock(area) {
                Ok(_) => true,
                Err(Error::Refused(Refused::TooSmall { .. })) => false,
                Err(error) => return Err(error.into()),
            };
        }
        Ok(())
    }

    /// A line of table IV.
    fn note(&self) -> String {
        let humane = |pages: u64| Unit::Bytes.humane((pages * PAGE as u64) as f64);
        let technique = match (self.technique, self.locked) {
            (Some(Technique::Spc), _) => "SPC",
            (Some(Technique::Spel), true) => "SPEL",
            (Some(Technique::Spel), false) => "SPEL, but not every reservation has room: SPC",
            (None, _) => "nothing, for no viewer was seen to use it",
        };
        format!(
            "table IV, {}: Max {}, {} used at the most, n·Avg {}: {technique}",
            self.part.name,
            humane(self.part.pages.len() as u64),
            humane(self.usage.peak().into()),
            humane(self.usage.total_average()),
        )
    }
}

impl Played {
    /// Frames of the first player after it has seen the film once, which brings it in.
    fn steady(&self) -> &[Frame] {
        self.frames.get(FRAMES as usize..).unwrap_or_default()
    }

    fn frame_ns(&self) -> Samples {
        self.steady().iter().map(|frame| frame.ns).collect()
    }

    fn major(&self) -> u64 {
        self.steady().iter().map(|frame| frame.major).sum()
    }
}

fn of(played: &[Played], way: Way) -> Option<&Played> {
    played.iter().find(|played| played.way == way)
}

fn findings(played: &[Played]) -> [Finding; 4] {
    let [alone, none, managed] = Way::ALL.map(|way| of(played, way));
    let major = |played: Option<&Played>| played.map(|played| played.major() as f64);
    let against_alone = |played: Option<&Played>| {
        let (played, alone) = played.zip(alone)?;
        played.frame_ns().ratio_to(&alone.frame_ns(), 0.5)
    };
    [
        Finding::at_most(
            "major faults of the first player beside two that page, managed",
            Unit::Count,
            major(managed),
            0.0,
        ),
        Finding::at_least(
            "its major faults without management",
            Unit::Count,
            major(none),
            MISSING,
        ),
        Finding::at_most(
            "the first player's frames, managed, against playing alone",
            Unit::Ratio,
            against_alone(managed),
            DISTURBED,
        ),
        Finding::at_least(
            "the same without management",
            Unit::Ratio,
            against_alone(none),
            SLOWED,
        ),
    ]
}

fn figure(played: &[Played]) -> Figure {
    let curves = |value: fn(&Frame) -> u64| {
        let series = played.iter().map(|played| Series {
            name: played.way.name().to_owned(),
            points: played
                .frames
                .iter()
                .enumerate()
                .map(|(at, frame)| (at as f64, exactly(value(frame) as f64)))
                .collect(),
        });
        Marks::Curves {
            x: Axis::linear("frame", Unit::Count),
            series: series.collect(),
        }
    };
    let choices = of(played, Way::Managed).map_or(&[][..], |played| &played.choices);
    let bars = |name: &str, pages: fn(&Choice) -> u64| Series {
        name: name.to_owned(),
        points: choices
            .iter()
            .enumerate()
            .map(|(at, choice)| (at, exactly((pages(choice) * PAGE as u64) as f64)))
            .collect(),
    };
    Figure {
        title: "Three players of one film".into(),
        panels: vec![
            Panel {
                y: Axis::linear("time of a frame of the first player", Unit::Nanoseconds),
                marks: curves(|frame| frame.ns),
            },
            Panel {
                y: Axis::linear("its major faults", Unit::Count),
                marks: curves(|frame| frame.major),
            },
            Panel {
                y: Axis::linear("what is shared", Unit::Bytes),
                marks: Marks::Bars {
                    title: "part".into(),
                    groups: choices
                        .iter()
                        .map(|choice| choice.part.name.to_owned())
                        .collect(),
                    series: vec![
                        bars("Max", |choice| choice.part.pages.len() as u64),
                        bars("n·Avg", |choice| choice.usage.total_average()),
                    ],
                },
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::image::Image;
    use super::{FRAMES, Way, findings, measure};
    use crate::harness::experiment::Options;
    use leasehold_pager_linux::Features;
    use std::path::Path;

    #[test]
    fn players_lose_nothing_of_what_they_share_if_it_is_managed() {
        if let Err(unsupported) = Features::probe() {
            eprintln!("skipped: {unsupported}");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options {
            out_dir: directory.path().to_owned(),
            guests_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests"),
            ..Options::default()
        };
        let played = measure("test", 2 * FRAMES as usize, &options).expect("played");
        let [managed, none, ..] = findings(&played);
        assert!(managed.holds() && none.holds(), "{managed}, {none}");
        assert!(
            played
                .iter()
                .all(|played| played.frames.len() == 2 * FRAMES as usize)
        );
        // The others do page.
        for played in played.iter().filter(|played| played.way != Way::Alone) {
            assert!(
                played.others > 100,
                "{}: {}",
                played.way.name(),
                played.others
            );
        }
    }

    #[test]
    fn what_is_no_decoder_makes_no_image() {
        for text in [
            "(module)",
            "(module (func (export \"prepare\") (param i32)))",
        ] {
            let program = wat::parse_str(text).expect("a module");
            assert!(Image::take(&program, 1).is_err(), "{text}");
        }
    }
}
