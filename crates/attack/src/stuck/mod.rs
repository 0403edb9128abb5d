//! Components that a kill meets in `cabi_realloc`, for each function that can return a list or a string.
//!
//! The host calls `cabi_realloc` while a host call returns. A guest that loops there must be preempted and killed as
//! anywhere else. The functions are found in the packages ([`Offer::reallocates`]); `returns.txt` says how to call each,
//! and `others.txt` which have nothing to return here. Those of a request that comes are called by a program that answers
//! it.

use crate::component::wrap;
use crate::offer::{Offer, Offers, World};
use crate::plan::{Form, Plan, Realloc};
use crate::render::{late, render};
use crate::steps::recipe;
use anyhow::{Context, Result};

/// A program that calls a function whose result needs `cabi_realloc`.
#[derive(Debug, Clone)]
pub struct Program {
    /// The function.
    pub name: String,
    /// The component.
    pub bytes: Vec<u8>,
}

/// The turns that a `cabi_realloc` takes before it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// So many.
    Some(u32),
    /// It never returns.
    All,
}

/// Returns a program for each function that returns lists or strings. It calls the function `repeat` times, for ever
/// with 0; afterwards it succeeds if `cabi_realloc` was called by it.
///
/// # Errors
/// When a line of the list is malformed, which is a defect.
pub fn programs(turns: Turns, repeat: u32) -> Result<Vec<Program>> {
    let offers = Offers::all()?;
    let program = |line| -> Result<Program> {
        let (plan, offer) = plan(line, &offers, turns, repeat)?;
        Ok(Program {
            name: title(offer),
            bytes: render(&plan, &offers)?.1,
        })
    };
    let lines = lines(include_str!("returns.txt"));
    lines
        .map(|line| program(line).with_context(|| line.to_owned()))
        .collect()
}

/// What a program that answers requests asks of one.
const SERVED: [&str; 3] = ["method", "path-with-query", "authority"];

/// Returns a program for each function of an incoming request that returns a string. For each request it calls the
/// function once, or for ever.
///
/// # Errors
/// When such a program is malformed, which is a defect.
pub fn handlers(turns: Turns, for_ever: bool) -> Result<Vec<Program>> {
    let program = |function: &str| -> Result<Program> {
        let module = include_str!("served.wat")
            .replace("FUNCTION", function)
            .replace("REALLOC", &late(turns.number()))
            .replace("AGAIN", if for_ever { "(br $again)" } else { "" });
        Ok(Program {
            name: served(function),
            bytes: wrap(wat::parse_str(&module)?, World::Served)?,
        })
    };
    SERVED.into_iter().map(program).collect()
}

fn served(function: &str) -> String {
    format!("wasi:http/types@0.2.12 [method]incoming-request.{function}")
}

impl Turns {
    fn number(self) -> u32 {
        match self {
            Self::Some(turns) => turns.min(u32::MAX - 1),
            Self::All => u32::MAX,
        }
    }
}

/// Returns the functions that can return lists or strings and are in neither list.
///
/// # Errors
/// When a line of a list is malformed, or names another function.
pub fn missing() -> Result<Vec<String>> {
    let offers = Offers::all()?;
    let all = || offers.component.iter().filter(|offer| offer.reallocates);
    let mut known = Vec::new();
    for line in lines(include_str!("returns.txt")) {
        known.push(plan(line, &offers, Turns::All, 1)?.1);
    }
    for line in lines(include_str!("others.txt")) {
        let (name, _) = line.split_once(": ").context("no reason")?;
        let named = all().find(|offer| recipe::is_named(offer, name));
        known.push(named.with_context(|| format!("{name} is not offered"))?);
    }
    let missing = all().filter(|offer| !known.contains(offer)).map(title);
    let served = SERVED.map(served);
    Ok(missing.filter(|title| !served.contains(title)).collect())
}

fn title(offer: &Offer) -> String {
    format!("{} {}", offer.module, offer.name)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// The plan of a line, and the function that it is for.
fn plan<'a>(
    line: &str,
    offers: &'a Offers,
    turns: Turns,
    repeat: u32,
) -> Result<(Plan, &'a Offer)> {
    let known = &offers.component;
    let (before, repeated) = line.split_once('|').context("not two parts")?;
    let calls: Vec<&str> = repeated.trim().split(" ; ").collect();
    let marked = calls.iter().position(|call| call.starts_with('!'));
    let marked = marked.context("no call is marked")?;
    let name = calls[marked].split_whitespace().next();
    let name = name.unwrap_or_default().trim_start_matches('!');
    let mut reallocating = known.iter().filter(|offer| offer.reallocates);
    let offer = reallocating.find(|offer| recipe::is_named(offer, name));
    let line = format!("{repeat} | {before} | {}", repeated.replace('!', ""));
    let plan = Plan {
        realloc: Realloc::Late {
            turns: turns.number(),
            step: u32::try_from(marked)?,
        },
        ..recipe::plan(Form::Component, &line, known)?
    };
    Ok((plan, offer.context("it returns no list or string")?))
}
