//! A plan as a program in the text format.
//!
//! The first 128 KiB of the memory are laid out as the constants below say; the rest is letters,
//! with a slash after every 63 of them.

use crate::component;
use crate::offer::{Flat, Offer, Offers, World};
use crate::plan::{Argument, Block, Call, Ending, Form, Place, Plan, Realloc, SLOTS, Step};
use anyhow::{Context, Result};
use std::fmt::Write as _;

const SLOT_BASE: u32 = 1024;
const SLOT_BYTES: u32 = 256;
const NAME: u32 = 6000;
const PATH: u32 = 6016;
const OUTSIDE: u32 = 6032;
const VECTORS: u32 = 8192;
const HANDLES: u32 = 16384;
const ZEROS: u32 = 20480;
const REST: u32 = 2 * 65536;
const DOWN: u32 = (PAGES - 1) * 65536;

/// Pages of 64 KiB that an attacker begins with.
const PAGES: u32 = 18;

/// The program of a plan: the text of its core module, and the bytes that a cell loads.
///
/// # Errors
/// When the plan calls a function that is not offered.
pub fn render(plan: &Plan, offers: &Offers) -> Result<(String, Vec<u8>)> {
    let known = match plan.form {
        Form::Core => &offers.core,
        Form::Component => &offers.component,
    };
    let text = Writer::new(plan, known)?.module()?;
    let module = wat::parse_str(&text).with_context(|| text.clone())?;
    let program = match plan.form {
        Form::Core => module,
        Form::Component => component::wrap(module, World::Attack)?,
    };
    Ok((text, program))
}

struct Writer<'a> {
    plan: &'a Plan,
    imports: Vec<&'a Offer>,
    text: String,
    /// The call that is written next.
    next: u32,
    /// Whether the last call returned a number, and not by its slot.
    returned: bool,
}

impl<'a> Writer<'a> {
    fn new(plan: &'a Plan, known: &'a [Offer]) -> Result<Self> {
        let mut imports: Vec<&Offer> = Vec::new();
        for step in plan.blocks.iter().flat_map(|block| &block.steps) {
            let Step::Call(call) = step else { continue };
            let is_it = |offer: &&Offer| offer.module == call.module && offer.name == call.name;
            if !imports.iter().any(&is_it) {
                let offer = known.iter().find(is_it);
                imports
                    .push(offer.with_context(|| {
                        format!("{} {} is not offered", call.module, call.name)
                    })?);
            }
        }
        Ok(Self {
            plan,
            imports,
            text: String::new(),
            next: 0,
            returned: false,
        })
    }

    fn module(mut self) -> Result<String> {
        self.text.push_str("(module\n");
        for (index, offer) in self.imports.iter().enumerate() {
            let parameters: Vec<_> = offer
                .parameters
                .iter()
                .map(|(flat, _)| flat.name())
                .collect();
            let result = offer
                .result
                .map_or(String::new(), |flat| format!(" (result {})", flat.name()));
            writeln!(
                self.text,
                "  (import {:?} {:?} (func $f{index} (param {}){result}))",
                offer.module,
                offer.name,
                parameters.join(" ")
            )?;
        }
        writeln!(
            self.text,
            "  (memory (export \"memory\") {PAGES})\n  (table $table 1 funcref)"
        )?;
        for slot in 0..SLOTS {
            writeln!(self.text, "  (global $r{slot} (mut i64) (i64.const 0))")?;
        }
        writeln!(
            self.text,
            "  (data (i32.const {NAME}) \"f\") (data (i32.const {PATH}) \"a/b/c\") (data (i32.const {OUTSIDE}) \"../../x\")"
        )?;
        self.text.push_str(&preparation());
        for (index, block) in self.plan.blocks.iter().enumerate() {
            self.block(index, block)?;
        }
        self.entry()?;
        self.text.push_str(")\n");
        Ok(self.text)
    }

    fn entry(&mut self) -> Result<()> {
        let calls: String = (0..self.plan.blocks.len())
            .map(|index| format!(" (call $block{index})"))
            .collect();
        let end = match self.plan.ending {
            Ending::Kill(_) | Ending::Return => "",
            Ending::Trap => " unreachable",
            Ending::Overflow => " (call $overflow)",
        };
        self.text
            .push_str("  (func $overflow (call $overflow) (call $overflow))\n");
        match self.plan.form {
            Form::Core => {
                writeln!(
                    self.text,
                    "  (func (export \"_start\") (call $prepare){calls}{end})"
                )?;
            }
            Form::Component => {
                // A realloc that is late says whether it was called then.
                let answer = match self.plan.realloc {
                    Realloc::Late { .. } => "(i32.eqz (global.get $taken))",
                    _ => "(i32.const 0)",
                };
                writeln!(
                    self.text,
                    "  (global $late (mut i32) (i32.const 0)) (global $taken (mut i32) (i32.const 0))"
                )?;
                writeln!(
                    self.text,
                    "  (func (export \"wasi:cli/run@0.2.12#run\") (result i32) (call $prepare){calls}{end} {answer})"
                )?;
                writeln!(
                    self.text,
                    "  (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) {})",
                    match self.plan.realloc {
                        Realloc::Place => format!("(i32.const {REST})"),
                        Realloc::Loop => "(loop $l (br $l)) unreachable".to_owned(),
                        Realloc::Trap => "unreachable".to_owned(),
                        Realloc::Grow =>
                            format!("(drop (memory.grow (i32.const 1))) (i32.const {REST})"),
                        Realloc::Outside => "(i32.const 2147483640)".to_owned(),
                        Realloc::Late { turns, .. } => late(turns),
                    }
                )?;
            }
        }
        Ok(())
    }

    fn block(&mut self, index: usize, block: &Block) -> Result<()> {
        writeln!(
            self.text,
            "  (func $block{index} (local $round i32) (local $at i32)\n    (loop $again"
        )?;
        let is_last = index + 1 == self.plan.blocks.len();
        for (number, step) in (0..).zip(&block.steps) {
            let is_late = is_last
                && matches!(self.plan.realloc, Realloc::Late { step, .. } if step == number);
            if is_late {
                self.text
                    .push_str("      (global.set $late (i32.const 1))\n");
            }
            self.step(step)?;
            if is_late {
                self.text
                    .push_str("      (global.set $late (i32.const 0))\n");
            }
        }
        self.text
            .push_str("      (local.set $round (i32.add (local.get $round) (i32.const 1)))\n");
        match block.repeat {
            0 => self.text.push_str("      (br $again)"),
            n => write!(
                self.text,
                "      (br_if $again (i32.lt_u (local.get $round) (i32.const {n})))"
            )?,
        }
        self.text.push_str("))\n");
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Call(call) => return self.call(call),
            Step::Grow(pages) => {
                writeln!(self.text, "      (drop (memory.grow (i32.const {pages})))")?;
            }
            Step::Touch(pages) => writeln!(
                self.text,
                "      (local.set $at (i32.const {REST}))
      (block $out (loop $touch
        (br_if $out (i32.ge_u (local.get $at) (i32.mul (memory.size) (i32.const 65536))))
        (br_if $out (i32.ge_u (local.get $at) (i32.const {})))
        (i32.store8 (local.get $at) (i32.const 1))
        (local.set $at (i32.add (local.get $at) (i32.const 4096)))
        (br $touch)))",
                REST + pages.min(&15_000) * 4096
            )?,
            Step::Fill(kib) => writeln!(
                self.text,
                "      (if (i32.ge_u (i32.mul (memory.size) (i32.const 65536)) (i32.const {0}))
        (then (memory.fill (i32.const {REST}) (i32.const 97) (i32.const {1}))))",
                REST + kib.min(&1_000_000) * 1024,
                kib.min(&1_000_000) * 1024
            )?,
            Step::GrowTable(elements) => writeln!(
                self.text,
                "      (drop (table.grow $table (ref.null func) (i32.const {elements})))"
            )?,
            Step::Spin(rounds) => writeln!(
                self.text,
                "      (local.set $at (i32.const {rounds}))
      (loop $spin (br_if $spin (local.tee $at (i32.sub (local.get $at) (i32.const 1)))))",
                rounds = rounds.max(&1)
            )?,
        }
        Ok(())
    }

    fn call(&mut self, call: &Call) -> Result<()> {
        let found = self
            .imports
            .iter()
            .enumerate()
            .find(|(_, offer)| offer.module == call.module && offer.name == call.name);
        let (index, offer) = found.context("an import of the plan")?;
        let (parameters, result) = (offer.parameters.clone(), offer.result);
        let slot = self.next % u32::from(SLOTS);
        if call.arguments.contains(&Argument::At(Place::Handles)) {
            let last = self.next.wrapping_sub(1);
            let handle = match self.returned {
                true => format!("(i32.wrap_i64 (global.get $r{}))", last % u32::from(SLOTS)),
                false => format!("(i32.load offset=4 (i32.const {}))", slot_address(last)),
            };
            writeln!(self.text, "      (call $handles {handle})")?;
        }
        let mut given = String::new();
        for (number, (flat, _)) in parameters.iter().enumerate() {
            let argument = call.arguments.get(number).copied();
            given.push(' ');
            given.push_str(&self.argument(*flat, argument.unwrap_or(Argument::Number(0))));
        }
        let called = format!("(call $f{index}{given})");
        match result {
            None => writeln!(self.text, "      {called}")?,
            Some(Flat::I64) => writeln!(self.text, "      (global.set $r{slot} {called})")?,
            Some(Flat::I32) => writeln!(
                self.text,
                "      (global.set $r{slot} (i64.extend_i32_u {called}))"
            )?,
            Some(Flat::F32 | Flat::F64) => writeln!(self.text, "      (drop {called})")?,
        }
        self.returned = result.is_some();
        self.next += 1;
        Ok(())
    }

    fn argument(&self, flat: Flat, argument: Argument) -> String {
        let back = |n: u8| self.next.wrapping_sub(u32::from(n % SLOTS));
        let word = match argument {
            Argument::Number(number) => {
                return match flat {
                    Flat::I32 => format!("(i32.const {})", number as i32),
                    Flat::I64 => format!("(i64.const {number})"),
                    Flat::F32 => format!("(f32.const {number})"),
                    Flat::F64 => format!("(f64.const {number})"),
                };
            }
            Argument::At(place) => format!("(i32.const {})", self.address(place)),
            Argument::Result(n) => {
                let slot = back(n) % u32::from(SLOTS);
                format!("(i32.wrap_i64 (global.get $r{slot}))")
            }
            Argument::Word(n, word) => format!(
                "(i32.load offset={} (i32.const {}))",
                4 * u32::from(word % 8),
                slot_address(back(n))
            ),
            Argument::Element(n) => {
                format!(
                    "(call $element (i32.load (i32.const {})))",
                    slot_address(back(n))
                )
            }
            Argument::Round => "(local.get $round)".to_owned(),
        };
        match flat {
            Flat::I32 => word,
            Flat::I64 => format!("(i64.extend_i32_u {word})"),
            Flat::F32 => format!("(f32.convert_i32_u {word})"),
            Flat::F64 => format!("(f64.convert_i32_u {word})"),
        }
    }

    fn address(&self, place: Place) -> u32 {
        match place {
            Place::Slot => slot_address(self.next),
            Place::Name => NAME,
            Place::Path => PATH,
            Place::Outside => OUTSIDE,
            Place::Vectors => VECTORS,
            Place::Handles => HANDLES,
            Place::Zeros => ZEROS,
            Place::Rest => REST,
            Place::Down => DOWN,
        }
    }
}

/// The body of a `cabi_realloc` that takes so many turns while it is late.
pub(crate) fn late(turns: u32) -> String {
    let turns = match turns {
        u32::MAX => "(br $again)".to_owned(),
        turns => format!(
            "(br_if $again (i32.lt_u
          (local.tee $turn (i32.add (local.get $turn) (i32.const 1))) (i32.const {turns})))"
        ),
    };
    format!(
        "(local $turn i32)
    (if (global.get $late)
      (then (global.set $taken (i32.const 1)) (loop $again {turns})))
    (i32.const {REST})"
    )
}

fn slot_address(call: u32) -> u32 {
    SLOT_BASE + call % u32::from(SLOTS) * SLOT_BYTES
}

/// The functions that make the memory ready.
fn preparation() -> String {
    format!(
        "  (func $prepare (local $i i32)
    (memory.fill (i32.const {REST}) (i32.const 97) (i32.const {rest_bytes}))
    (loop $vectors
      (i32.store (i32.add (i32.const {VECTORS}) (i32.shl (local.get $i) (i32.const 3))) (i32.const {REST}))
      (i32.store offset=4 (i32.add (i32.const {VECTORS}) (i32.shl (local.get $i) (i32.const 3))) (i32.const 65536))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $vectors (i32.lt_u (local.get $i) (i32.const 1024))))
    (local.set $i (i32.const {REST}))
    (loop $slashes
      (i32.store8 offset=63 (local.get $i) (i32.const 47))
      (local.set $i (i32.add (local.get $i) (i32.const 64)))
      (br_if $slashes (i32.lt_u (local.get $i) (i32.const {end})))))
  (func $handles (param $handle i32) (local $i i32)
    (loop $more
      (i32.store (i32.add (i32.const {HANDLES}) (i32.shl (local.get $i) (i32.const 2))) (local.get $handle))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $i) (i32.const 1024)))))
  (func $element (param $list i32) (result i32)
    (if (result i32) (i32.lt_u (local.get $list) (i32.const {last}))
      (then (i32.load (local.get $list))) (else (i32.const 0))))
",
        rest_bytes = PAGES * 65536 - REST,
        end = PAGES * 65536,
        last = PAGES * 65536 - 4,
    )
}
