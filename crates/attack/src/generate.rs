//! Random plans, and changes of plans.
//!
//! Most plans begin with an idiom: a sequence that chance would seldom find, such as opening a
//! directory before a file in it. The calls after that, and their arguments, are drawn from
//! everything offered.

use crate::offer::{Flat, Meaning, Offer, Offers};
use crate::plan::{Argument, Block, Call, Ending, Form, Place, Plan, Realloc, Step, Terms};
use crate::sockets::{connections, datagrams, listeners};
use fastrand::Rng;

/// Numbers at the edges.
const NUMBERS: [i64; 20] = [
    0,
    1,
    2,
    7,
    8,
    64,
    255,
    4096,
    65_535,
    65_536,
    120_000,
    1 << 20,
    16 << 20,
    64 << 20,
    1 << 30,
    i32::MAX as i64,
    u32::MAX as i64,
    i64::MAX,
    i64::MIN,
    -1,
];

/// Most blocks of a plan, and steps of a block.
const MOST: usize = 4;

const PREVIEW1: &str = "wasi_snapshot_preview1";
const KERNEL: &str = "leasehold_kernel";
const ALL_RIGHTS: i64 = 0x1fff_ffff;

/// Makes and changes plans.
pub(crate) struct Generator<'a> {
    offers: &'a Offers,
    rng: Rng,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(offers: &'a Offers, seed: u64) -> Self {
        Self {
            offers,
            rng: Rng::with_seed(seed),
        }
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.rng.usize(..end.max(1))
    }

    /// A plan that has nothing to do with others.
    pub(crate) fn fresh(&mut self) -> Plan {
        let form = if self.rng.bool() {
            Form::Core
        } else {
            Form::Component
        };
        let mut blocks = Vec::new();
        if self.rng.u8(..10) < 7 {
            blocks.extend(self.idiom(form));
        }
        for _ in 0..self.rng.usize(1..=2) {
            blocks.push(self.block(form));
        }
        Plan {
            form,
            terms: self.terms(),
            realloc: self.realloc(),
            blocks,
            ending: self.ending(),
        }
    }

    /// The same plan with one change.
    pub(crate) fn changed(&mut self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        match self.rng.u8(..8) {
            0 => plan.terms = self.terms(),
            1 => plan.realloc = self.realloc(),
            2 => plan.ending = self.ending(),
            3 if plan.blocks.len() < MOST => plan.blocks.push(self.block(plan.form)),
            4 => {
                let at = self.below(plan.blocks.len());
                if let Some(block) = plan.blocks.get_mut(at) {
                    block.repeat = self.repeat();
                }
            }
            5 => {
                let at = self.below(plan.blocks.len());
                let step = self.step(plan.form);
                if let Some(block) = plan.blocks.get_mut(at)
                    && block.steps.len() < 2 * MOST
                {
                    block.steps.push(step);
                }
            }
            _ => self.change_argument(&mut plan),
        }
        plan
    }

    fn change_argument(&mut self, plan: &mut Plan) {
        let at = self.below(plan.blocks.len());
        let Some(block) = plan.blocks.get_mut(at) else {
            return;
        };
        let at = self.below(block.steps.len());
        let Some(Step::Call(call)) = block.steps.get_mut(at) else {
            return;
        };
        let at = self.below(call.arguments.len());
        let Some(argument) = call.arguments.get_mut(at) else {
            return;
        };
        *argument = match self.rng.u8(..4) {
            0 => Argument::Result(self.rng.u8(1..4)),
            1 => Argument::Word(self.rng.u8(1..4), self.rng.u8(..3)),
            2 => Argument::At(Place::ALL[self.below(Place::ALL.len())]),
            _ => self.number(),
        };
    }

    fn terms(&mut self) -> Terms {
        Terms {
            budget_ms: [1, 5, 20, 50][self.below(4)],
            memory_mib: [2, 8, 64, 256][self.below(4)],
            reserved: self.rng.u8(..4) == 0,
            pages: self.rng.u8(..3) == 0,
        }
    }

    fn realloc(&mut self) -> Realloc {
        [
            Realloc::Place,
            Realloc::Place,
            Realloc::Loop,
            Realloc::Trap,
            Realloc::Grow,
            Realloc::Outside,
        ][self.below(6)]
    }

    fn ending(&mut self) -> Ending {
        match self.rng.u8(..6) {
            0 => Ending::Return,
            1 => Ending::Trap,
            2 => Ending::Overflow,
            _ => Ending::Kill(self.rng.u32(1_000..200_000)),
        }
    }

    fn repeat(&mut self) -> u32 {
        [0, 0, 1, 1, 16, 1_000, 20_000, 200_000][self.below(8)]
    }

    fn block(&mut self, form: Form) -> Block {
        let steps = (0..self.rng.usize(1..=MOST))
            .map(|_| self.step(form))
            .collect();
        Block {
            repeat: self.repeat(),
            steps,
        }
    }

    fn step(&mut self, form: Form) -> Step {
        match self.rng.u8(..20) {
            0 => Step::Grow([1, 16, 256, 4096][self.below(4)]),
            1 => Step::Touch([16, 512, 4096][self.below(3)]),
            2 => Step::Fill([4, 1024, 65_536][self.below(3)]),
            3 => Step::GrowTable([1, 1_000, 1 << 20][self.below(3)]),
            4 => Step::Spin([1_000, 1_000_000][self.below(2)]),
            _ => Step::Call(self.any_call(form)),
        }
    }

    fn any_call(&mut self, form: Form) -> Call {
        let offers = self.offers;
        let known = match form {
            Form::Core => &offers.core,
            Form::Component => &offers.component,
        };
        // Not a call that ends the program: endings do that.
        loop {
            let offer = &known[self.below(known.len())];
            if !matches!(
                offer.name.as_str(),
                "proc_exit" | "proc_raise" | "exit" | "exit-with-code"
            ) {
                return self.call(offer);
            }
        }
    }

    fn call(&mut self, offer: &Offer) -> Call {
        Call {
            module: offer.module.clone(),
            name: offer.name.clone(),
            arguments: offer
                .parameters
                .iter()
                .map(|(flat, meaning)| self.argument(*flat, *meaning))
                .collect(),
        }
    }

    fn number(&mut self) -> Argument {
        Argument::Number(NUMBERS[self.below(NUMBERS.len())])
    }

    /// An argument: mostly a meaningful one, because others are refused at once.
    fn argument(&mut self, flat: Flat, meaning: Meaning) -> Argument {
        if self.rng.u8(..10) == 0 {
            return self.number();
        }
        let recent = self.rng.u8(1..5);
        match meaning {
            Meaning::Handle => match self.rng.u8(..4) {
                0 => Argument::Number(i64::from(self.rng.u8(..6))),
                1 => Argument::Result(recent),
                2 => Argument::Element(recent),
                _ => Argument::Word(recent, self.rng.u8(..2)),
            },
            Meaning::Selector => match self.rng.u8(..3) {
                0 => Argument::Number(i64::from(self.rng.u8(..6))),
                1 => Argument::Result(recent),
                _ => Argument::Word(recent, 1),
            },
            Meaning::Small => Argument::Number(i64::from(self.rng.u8(..16))),
            Meaning::Out => Argument::At(Place::Slot),
            Meaning::Buffer => Argument::At(Place::Rest),
            Meaning::Path => {
                Argument::At([Place::Name, Place::Path, Place::Outside, Place::Rest][self.below(4)])
            }
            Meaning::Vectors => Argument::At(Place::Vectors),
            Meaning::Handles => Argument::At(Place::Handles),
            Meaning::Zeros => Argument::At(Place::Zeros),
            Meaning::Length => {
                Argument::Number([0, 1, 5, 64, 4096, 65_536, 1 << 20][self.below(7)])
            }
            Meaning::Count => Argument::Number([0, 1, 16, 1_024, 65_536][self.below(5)]),
            Meaning::Number if flat == Flat::I32 && self.rng.bool() => Argument::Number(0),
            Meaning::Number if self.rng.u8(..4) == 0 => Argument::Round,
            Meaning::Number => self.number(),
        }
    }

    fn idiom(&mut self, form: Form) -> Vec<Block> {
        match form {
            Form::Core => self.core_idiom(),
            Form::Component => self.component_idiom(),
        }
    }

    fn core_idiom(&mut self) -> Vec<Block> {
        let many = [16, 1_000, 20_000][self.below(3)];
        let opened = path_open(Place::Name, Argument::Number(1), Argument::Number(1));
        match self.rng.u8(..7) {
            // Descriptors, as many as there are.
            0 => vec![Block {
                repeat: many,
                steps: vec![opened],
            }],
            // A file without a name that is written to.
            1 => vec![
                Block {
                    repeat: 1,
                    steps: vec![
                        opened,
                        call(
                            PREVIEW1,
                            "path_unlink_file",
                            [
                                Argument::Number(3),
                                Argument::At(Place::Name),
                                Argument::Number(1),
                            ],
                        ),
                    ],
                },
                Block {
                    repeat: many / 8 + 1,
                    steps: vec![call(
                        PREVIEW1,
                        "fd_write",
                        [
                            Argument::Number(4),
                            Argument::At(Place::Vectors),
                            Argument::Number(16),
                            Argument::At(Place::Slot),
                        ],
                    )],
                },
            ],
            // The same program again and again.
            2 => vec![Block {
                repeat: many,
                steps: vec![call(
                    KERNEL,
                    "task_start",
                    [Argument::At(Place::Zeros), Argument::Number(0)],
                )],
            }],
            // Kernel objects.
            3 => {
                let (name, argument) = [
                    ("semaphore_create", 1),
                    ("channel_create", 16 << 20),
                    ("region_create", 16 << 20),
                ][self.below(3)];
                vec![Block {
                    repeat: many,
                    steps: vec![call(KERNEL, name, [Argument::Number(argument)])],
                }]
            }
            // Much at once.
            5 => vec![Block {
                repeat: 0,
                steps: vec![
                    Step::Grow(512),
                    call(
                        PREVIEW1,
                        "random_get",
                        [Argument::At(Place::Rest), Argument::Number(16 << 20)],
                    ),
                ],
            }],
            // Timers that fire often.
            4 => vec![Block {
                repeat: many,
                steps: vec![
                    call(KERNEL, "timer_create", []),
                    call(
                        KERNEL,
                        "timer_set",
                        [
                            Argument::Result(1),
                            Argument::Number(50_000),
                            Argument::Number(50_000),
                        ],
                    ),
                ],
            }],
            // A path of any length.
            _ => {
                let length = self.number();
                vec![Block {
                    repeat: 0,
                    steps: vec![
                        Step::Grow(256),
                        path_open(Place::Rest, length, Argument::Number(0)),
                    ],
                }]
            }
        }
    }

    fn component_idiom(&mut self) -> Vec<Block> {
        let many = [16, 1_000, 20_000][self.below(3)];
        let directories = call(
            "wasi:filesystem/preopens@0.2.12",
            "get-directories",
            [Argument::At(Place::Slot)],
        );
        let open_at = |directory| {
            call(
                "wasi:filesystem/types@0.2.12",
                "[method]descriptor.open-at",
                [
                    directory,
                    Argument::Number(0),
                    Argument::At(Place::Name),
                    Argument::Number(1),
                    Argument::Number(1),
                    Argument::Number(3),
                    Argument::At(Place::Slot),
                ],
            )
        };
        match self.rng.u8(..9) {
            // Connections, sockets that listen, and those for datagrams.
            5 => connections(many, self.rng.u16(1..4)),
            6 => datagrams(many, Argument::Number(0)),
            7 => datagrams(many, Argument::Number(1)),
            8 => listeners(many),
            // Descriptors, and a stream of each.
            0 => vec![Block {
                repeat: many,
                steps: vec![
                    directories,
                    open_at(Argument::Element(1)),
                    call(
                        "wasi:filesystem/types@0.2.12",
                        "[method]descriptor.read-via-stream",
                        [
                            Argument::Word(1, 1),
                            Argument::Number(0),
                            Argument::At(Place::Slot),
                        ],
                    ),
                    call(
                        "wasi:io/streams@0.2.12",
                        "[method]input-stream.read",
                        [
                            Argument::Word(1, 1),
                            Argument::Number(65_536),
                            Argument::At(Place::Slot),
                        ],
                    ),
                ],
            }],
            // A list that the host writes into the guest's memory.
            1 => {
                let length = self.number();
                vec![Block {
                    repeat: 0,
                    steps: vec![call(
                        "wasi:random/random@0.2.12",
                        "get-random-bytes",
                        [length, Argument::At(Place::Slot)],
                    )],
                }]
            }
            // One pollable, many times.
            2 => {
                let count = [16, 1_024, 120_000][self.below(3)];
                vec![Block {
                    repeat: 0,
                    steps: vec![
                        call(
                            "wasi:clocks/monotonic-clock@0.2.12",
                            "subscribe-duration",
                            [Argument::Number(0)],
                        ),
                        call(
                            "wasi:io/poll@0.2.12",
                            "poll",
                            [
                                Argument::At(Place::Handles),
                                Argument::Number(count),
                                Argument::At(Place::Slot),
                            ],
                        ),
                    ],
                }]
            }
            // Pollables.
            3 => vec![Block {
                repeat: many,
                steps: vec![call(
                    "wasi:clocks/monotonic-clock@0.2.12",
                    "subscribe-duration",
                    [Argument::Number(1 << 40)],
                )],
            }],
            // A region, read as a list.
            _ => vec![Block {
                repeat: 0,
                steps: vec![
                    call(
                        "leasehold:kernel/region@0.1.0",
                        "create",
                        [Argument::Number(1 << 20), Argument::At(Place::Slot)],
                    ),
                    call(
                        "leasehold:kernel/region@0.1.0",
                        "read",
                        [
                            Argument::Word(1, 1),
                            Argument::Number(0),
                            Argument::Number(65_536),
                            Argument::At(Place::Slot),
                        ],
                    ),
                ],
            }],
        }
    }
}

fn call<const N: usize>(module: &str, name: &str, arguments: [Argument; N]) -> Step {
    Step::call(module, name, &[&arguments])
}

fn path_open(path: Place, length: Argument, flags: Argument) -> Step {
    call(
        PREVIEW1,
        "path_open",
        [
            Argument::Number(3),
            Argument::Number(0),
            Argument::At(path),
            length,
            flags,
            Argument::Number(ALL_RIGHTS),
            Argument::Number(ALL_RIGHTS),
            Argument::Number(0),
            Argument::At(Place::Slot),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::Generator;
    use crate::offer::Offers;
    use crate::plan::Plan;
    use crate::render::render;

    #[test]
    fn every_plan_is_a_program() {
        let offers = Offers::all().expect("well-formed");
        let mut generator = Generator::new(&offers, 1);
        let mut plan = generator.fresh();
        for round in 0..200 {
            plan = if round % 4 == 0 {
                generator.fresh()
            } else {
                generator.changed(&plan)
            };
            let (text, program) =
                render(&plan, &offers).unwrap_or_else(|error| panic!("{plan:?}: {error:#}"));
            assert!(text.contains("memory") && !program.is_empty());
        }
    }

    #[test]
    fn a_plan_that_was_written_down_is_the_same_when_it_is_read() {
        let offers = Offers::all().expect("well-formed");
        let mut generator = Generator::new(&offers, 2);
        for _ in 0..100 {
            let plan = generator.fresh();
            let text = serde_json::to_string(&plan).expect("text");
            assert_eq!(serde_json::from_str::<Plan>(&text).expect("a plan"), plan);
        }
    }

    #[test]
    fn a_seed_gives_the_same_plans_again() {
        let offers = Offers::all().expect("well-formed");
        let plans = |seed| {
            let mut generator = Generator::new(&offers, seed);
            (0..20).map(|_| generator.fresh()).collect::<Vec<_>>()
        };
        assert_eq!(plans(3), plans(3));
        assert_ne!(plans(3), plans(4));
    }
}
