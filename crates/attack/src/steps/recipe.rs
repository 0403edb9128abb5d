//! A measurement of some host functions as text: the calls that prepare it, and those that are
//! repeated.

use crate::offer::{Offer, Offers};
use crate::plan::{Argument, Block, Call, Ending, Form, Place, Plan, Realloc, Step, Terms};
use anyhow::{Context, Result, anyhow};
use leasehold_cell::steps::caps::{CHANGED_PATH, LEVELS};

/// The calls with which a component gets a file: the directory is handle 1 then, and the file
/// handle 2.
const FILE: &str =
    "preopens/get-directories @slot ; types/[method]descriptor.open-at 1 0 @name 1 1 3 @slot";

/// The calls that make as many directories in each other as a path may lead through on the cell's thread, with names of 63
/// letters: the longest path.
fn chain(form: Form) -> String {
    let make = |length: u64| match form {
        Form::Core => format!("path_create_directory 3 @down {length}"),
        Form::Component => {
            format!("types/[method]descriptor.create-directory-at 1 @down {length} @slot")
        }
    };
    let lengths = (1..=LEVELS.most).map(|levels| levels * NAME - 1);
    lengths.map(make).collect::<Vec<_>>().join(" ; ")
}

/// The call that opens one of them, below which a short path is as deep as it may be.
fn deep(form: Form) -> String {
    let length = (LEVELS.most - CHANGED_PATH.most / NAME) * NAME - 1;
    match form {
        Form::Core => format!("path_open 3 0 @down {length} 2 0 all 0 @slot"),
        Form::Component => {
            format!("types/[method]descriptor.open-at 1 0 @down {length} 2 33 @slot")
        }
    }
}

/// Bytes of a name, with the slash behind it.
const NAME: u64 = 64;

/// The recipes of a form, each as a plan.
///
/// # Errors
/// When one is malformed or calls a function that is not offered, which is a defect.
pub(super) fn plans(form: Form, offers: &Offers) -> Result<Vec<Plan>> {
    let (text, known) = match form {
        Form::Core => (include_str!("core.txt"), &offers.core),
        Form::Component => (include_str!("component.txt"), &offers.component),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| plan(form, line, known).with_context(|| line.to_owned()))
        .collect()
}

/// The plan of one recipe.
///
/// # Errors
/// As those of [`plans`].
pub(crate) fn plan(form: Form, line: &str, known: &[Offer]) -> Result<Plan> {
    let parts: Vec<&str> = line.split('|').map(str::trim).collect();
    let [times, before, repeated] = parts[..] else {
        return Err(anyhow!("not three parts"));
    };
    let steps = |text: &str| -> Result<Vec<Step>> {
        let text = text.replace("FILE", FILE).replace("CHAIN", &chain(form));
        let text = text.replace("DEEP", &deep(form));
        let calls = text.split(" ; ").filter(|call| !call.is_empty());
        calls.map(|call| step(call, known)).collect()
    };
    let mut blocks = vec![Block {
        repeat: times.parse()?,
        steps: steps(repeated)?,
    }];
    if !before.is_empty() {
        blocks.insert(
            0,
            Block {
                repeat: 1,
                steps: steps(before)?,
            },
        );
    }
    Ok(Plan {
        form,
        terms: Terms {
            budget_ms: 1000,
            memory_mib: 64,
            reserved: false,
            pages: false,
        },
        realloc: Realloc::Place,
        blocks,
        ending: Ending::Return,
    })
}

fn step(text: &str, known: &[Offer]) -> Result<Step> {
    let mut words = text.split_whitespace();
    let name = words.next().context("no function")?;
    let offer = known.iter().find(|offer| is_named(offer, name));
    let offer = offer.with_context(|| format!("{name} is not offered"))?;
    let arguments: Vec<Argument> = words.map(argument).collect::<Result<_>>()?;
    let (given, wanted) = (arguments.len(), offer.parameters.len());
    if given != wanted {
        return Err(anyhow!("{name} takes {wanted} arguments, not {given}"));
    }
    Ok(Step::Call(Call {
        module: offer.module.clone(),
        name: offer.name.clone(),
        arguments,
    }))
}

pub(crate) fn is_named(offer: &Offer, name: &str) -> bool {
    match name.split_once('/') {
        None => offer.name == name,
        Some((interface, name)) => {
            let module = offer.module.split('@').next();
            let last = module.and_then(|module| module.rsplit('/').next());
            offer.name == name && last == Some(interface)
        }
    }
}

fn argument(word: &str) -> Result<Argument> {
    if let Some(back) = word.strip_prefix('^') {
        return Ok(match back.split_once('.') {
            None => Argument::Result(back.parse()?),
            Some((back, word)) => Argument::Word(back.parse()?, word.parse()?),
        });
    }
    Ok(match word {
        "all" => Argument::Number(0x1fff_ffff),
        "@slot" => Argument::At(Place::Slot),
        "@name" => Argument::At(Place::Name),
        "@rest" => Argument::At(Place::Rest),
        "@down" => Argument::At(Place::Down),
        "@vectors" => Argument::At(Place::Vectors),
        "@handles" => Argument::At(Place::Handles),
        "@zeros" => Argument::At(Place::Zeros),
        number => Argument::Number(number.parse()?),
    })
}
