//! Makes plans smaller.

use crate::plan::{Ending, Plan, Realloc, Step};

/// Plans that do less than this one, those that do much less first.
pub(crate) fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut smaller = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Plan)| {
        let mut candidate = plan.clone();
        change(&mut candidate);
        if candidate != *plan {
            smaller.push(candidate);
        }
    };
    for index in 0..plan.blocks.len() {
        offer(&|plan| {
            plan.blocks.remove(index);
        });
    }
    for (index, block) in plan.blocks.iter().enumerate() {
        for step in 0..block.steps.len() {
            if block.steps.len() > 1 {
                offer(&|plan| {
                    plan.blocks[index].steps.remove(step);
                });
            }
            offer(&|plan| halve(&mut plan.blocks[index].steps[step]));
        }
        offer(&|plan| plan.blocks[index].repeat = 1);
        offer(&|plan| plan.blocks[index].repeat /= 8);
    }
    offer(&|plan| plan.realloc = Realloc::Place);
    offer(&|plan| plan.ending = Ending::Return);
    offer(&|plan| plan.terms.reserved = false);
    offer(&|plan| plan.terms.pages = false);
    smaller
}

fn halve(step: &mut Step) {
    match step {
        Step::Grow(n) | Step::Touch(n) | Step::Fill(n) | Step::GrowTable(n) | Step::Spin(n) => {
            *n = (*n / 2).max(1);
        }
        Step::Call(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::smaller;
    use crate::plan::{Block, Ending, Form, Plan, Realloc, Step, Terms};

    /// How much a plan does.
    fn size(plan: &Plan) -> u64 {
        let steps = |block: &Block| {
            let amounts = block.steps.iter().map(|step| match step {
                Step::Grow(n)
                | Step::Touch(n)
                | Step::Fill(n)
                | Step::GrowTable(n)
                | Step::Spin(n) => u64::from(*n),
                Step::Call(_) => 1,
            });
            10 + u64::from(block.repeat) + amounts.sum::<u64>()
        };
        plan.blocks.iter().map(steps).sum()
    }

    #[test]
    fn making_a_plan_smaller_comes_to_an_end() {
        let mut plan = Plan {
            form: Form::Core,
            terms: Terms {
                budget_ms: 1,
                memory_mib: 2,
                reserved: true,
                pages: false,
            },
            realloc: Realloc::Loop,
            blocks: vec![
                Block {
                    repeat: 20_000,
                    steps: vec![Step::Grow(4096), Step::Spin(1_000_000)],
                },
                Block {
                    repeat: 1,
                    steps: vec![Step::Fill(4)],
                },
            ],
            ending: Ending::Trap,
        };
        let mut rounds = 0;
        while let Some(next) = smaller(&plan).into_iter().next() {
            assert!(size(&next) <= size(&plan), "{next:?}");
            plan = next;
            rounds += 1;
            assert!(rounds < 1_000);
        }
        assert_eq!(size(&plan), 0);
    }
}
