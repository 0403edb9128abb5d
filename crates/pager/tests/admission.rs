//! The frames of a plan: as in the paper's table III, and as in the pager.

use leasehold_pager::admission::{Admitted, Management, NotAdmitted, Plan, Sharer};
use leasehold_pager::{Contract, MemoryBackend, PageNumber, Pager, Sharing, Technique};
use proptest::prelude::{Strategy, prop, prop_oneof, proptest};
use proptest::{prop_assert, prop_assert_eq, strategy::Just};

/// Frames per MB, as in the paper.
const MB: u32 = 256;
const SPC: Management = Management::By(Technique::Spc);
const SPEL: Management = Management::By(Technique::Spel);

/// What a task needs without locks, and how much of the 10 MB region it uses (SPC §VI-B, fig. 8).
#[derive(Clone, Copy)]
struct Task {
    reserve: u32,
    average: u32,
}

const TAU1: Task = Task {
    reserve: 11 * MB,
    average: 10 * MB,
};
const TAU2: Task = Task {
    reserve: 2 * MB,
    average: MB,
};

fn plan(tasks: &[Task], region: u32, management: Management) -> Plan {
    let mut plan = Plan::new();
    let sharers: Vec<Sharer> = tasks
        .iter()
        .map(|task| Sharer {
            reservation: plan.reservation(task.reserve),
            average: task.average,
        })
        .collect();
    plan.area(region, management, &sharers);
    plan
}

fn admit(tasks: [Task; 2], management: Management) -> Admitted {
    let plan = plan(&tasks, 10 * MB, management);
    plan.check(u64::MAX).expect("any number of frames")
}

/// `(reservations, total)` in MB.
fn row(tasks: [Task; 2], management: Management) -> (Vec<u32>, u64) {
    let admitted = admit(tasks, management);
    let reservations = admitted.reservations.iter().map(|frames| frames / MB);
    (reservations.collect(), admitted.physical / u64::from(MB))
}

#[test]
fn task_sets_take_as_much_memory_as_in_table_3() {
    let cases = [
        ([TAU1, TAU1], Management::None, [11, 11], 12),
        ([TAU1, TAU1], SPC, [11, 11], 22),
        ([TAU1, TAU1], SPEL, [11, 11], 12),
        ([TAU2, TAU2], Management::None, [2, 2], 3),
        ([TAU2, TAU2], SPC, [2, 2], 4),
        ([TAU2, TAU2], SPEL, [11, 11], 12),
        ([TAU1, TAU2], Management::None, [11, 2], 12),
        ([TAU1, TAU2], SPC, [11, 2], 13),
        ([TAU1, TAU2], SPEL, [11, 11], 12),
    ];
    for (tasks, management, reservations, total) in cases {
        let expected = (reservations.to_vec(), total);
        assert_eq!(row(tasks, management), expected, "{management:?}");
    }
}

#[test]
fn the_rule_picks_the_smaller_total_of_each_row_of_table_3() {
    let totals = [([TAU1, TAU1], 12), ([TAU2, TAU2], 4), ([TAU1, TAU2], 12)];
    for (tasks, total) in totals {
        assert_eq!(row(tasks, Management::Auto).1, total);
    }
}

#[test]
fn what_is_conserved_and_saved_is_said() {
    let spc = admit([TAU1, TAU2], SPC);
    assert_eq!((spc.conserved, spc.saved), (u64::from(MB), 0));
    let spel = admit([TAU1, TAU2], SPEL);
    assert_eq!((spel.conserved, spel.saved), (0, u64::from(10 * MB)));
}

#[test]
fn a_plan_that_takes_one_frame_too_many_is_not_admitted() {
    let plan = plan(&[TAU1, TAU2], 10 * MB, SPC);
    let needed = u64::from(13 * MB);
    assert!(plan.check(needed).is_ok());
    let frames = needed - 1;
    assert_eq!(plan.check(frames), Err(NotAdmitted { needed, frames }));
}

/// Pages, management, and the number of pages that each sharer uses.
type Area = (u32, Management, Vec<(usize, u32)>);

/// Sizes of reservations, and areas that they share.
fn planned() -> impl Strategy<Value = (Vec<u32>, Vec<Area>)> {
    let management = prop_oneof![Just(SPC), Just(SPEL), Just(Management::Auto)];
    let sharers = prop::collection::btree_map(0usize..4, 0u32..20, 1..4);
    let area = (1u32..20, management, sharers).prop_map(|(pages, management, sharers)| {
        let sharers = sharers
            .into_iter()
            .map(|(who, average)| (who, average.min(pages)));
        (pages, management, sharers.collect())
    });
    (
        prop::collection::vec(1u32..60, 4),
        prop::collection::vec(area, 0..4),
    )
}

proptest! {
    /// The sum is what the pager takes when the plan is carried out, whatever the tenants do.
    #[test]
    fn an_admitted_plan_takes_exactly_its_frames((reservations, areas) in planned()) {
        let mut plan = Plan::new();
        for &frames in &reservations {
            plan.reservation(frames);
        }
        for (pages, management, sharers) in &areas {
            let sharers: Vec<Sharer> = sharers.iter()
                .map(|&(reservation, average)| Sharer { reservation, average })
                .collect();
            plan.area(*pages, *management, &sharers);
        }
        let admitted = plan.check(u64::MAX).expect("any number of frames");
        // While it is set up, every copy of a page is there.
        let node = admitted.physical + admitted.saved;
        let node = u32::try_from(node).expect("a small plan");
        let mut pager = Pager::new(node, MemoryBackend::new(node));
        let ids: Vec<_> = admitted.reservations.iter()
            .map(|&frames| pager.reserve(&Contract::hard(frames)).expect("admitted"))
            .collect();
        for ((pages, _, sharers), technique) in areas.iter().zip(&admitted.techniques) {
            let area = pager.create_area(*pages, Sharing::Conserve).expect("an area");
            for &(who, average) in sharers {
                let at = pager.attach(ids[who], area).expect("room to swap");
                for page in PageNumber::range(0..average) {
                    pager.fault(at, page).expect("a frame");
                }
            }
            if *technique == Some(Technique::Spel) {
                pager.lock(area).expect("reservations larger than what they lock");
            }
        }
        let taken = u64::from(pager.total_frames() - pager.unreserved());
        prop_assert_eq!(taken, admitted.physical);
        pager.audit().expect("invariants");
    }

    /// For one area, the rule never takes more than the better of the two techniques.
    #[test]
    fn the_rule_takes_the_fewest_frames(
        pages in 1u32..50,
        uses in prop::collection::vec((1u32..50, 0u32..50), 1..5),
    ) {
        let tasks: Vec<Task> = uses.iter()
            .map(|&(private, average)| {
                let average = average.min(pages);
                Task { reserve: private + average, average }
            })
            .collect();
        let total = |management| {
            plan(&tasks, pages, management).check(u64::MAX).expect("fits").physical
        };
        let best = total(SPC).min(total(SPEL));
        prop_assert!(total(Management::Auto) == best, "{} and {}", total(SPC), total(SPEL));
    }
}
