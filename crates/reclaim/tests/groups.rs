//! Properties of groups, one at a time.

use leasehold_reclaim::{
    Config, CostModel, Groups, HeapBacking, Mode, Nanos, Outcome, PAGE, Picos, Progress, Refused,
};

const COSTS: CostModel = CostModel {
    root_ps: 10_000,
    group_ps: 2_000,
    scrub_ps: 5_000,
    chunk_ps: 300,
    page_ps: 25_600,
};

const MOST: u32 = if cfg!(miri) { 40 } else { 1 << 10 };

type Cell = Groups<HeapBacking, u32>;

fn cell(mode: Mode) -> Cell {
    let config = Config {
        arena_bytes: 8 << 20,
        keep_resident: 1 << 20,
        mode,
        max_groups: MOST,
    };
    Groups::new(config, COSTS, HeapBacking)
}

/// Ends a group and ignores its links.
fn end(groups: &mut Cell, group: leasehold_reclaim::GroupId) -> Outcome {
    groups.reclaim(group, &mut |_: &mut Cell, _| {})
}

fn left(groups: &Cell, group: leasehold_reclaim::GroupId) -> u64 {
    let left = groups.statement(group).expect("alive").left;
    assert_eq!(groups.left(group), Some(left));
    left.0
}

#[test]
fn an_object_reads_back_until_it_is_freed_or_its_group_ends() {
    for mode in [Mode::Grouped, Mode::Individual] {
        let mut groups = cell(mode);
        let class = groups.register::<[u64; 3]>("triple", 100);
        let root = groups.open_root(Nanos(1_000)).expect("root");
        let kept = groups.alloc(root, class, [1, 2, 3]).expect("room");
        let freed = groups.alloc(root, class, [4, 5, 6]).expect("room");
        groups.get_mut(kept).expect("there")[1] = 7;
        assert_eq!(groups.get(kept), Some(&[1, 7, 3]));
        assert_eq!(groups.free(freed), Some([4, 5, 6]));
        assert_eq!(groups.free(freed), None);
        let reused = groups.alloc(root, class, [8, 9, 10]).expect("room");
        assert_eq!(groups.get(freed), None, "the slot's generation moved on");
        assert_eq!(groups.get(reused), Some(&[8, 9, 10]));
        end(&mut groups, root);
        assert_eq!(groups.get(kept), None);
        assert_eq!(groups.group_of(kept.raw()), None);
        assert!(!groups.is_alive(root));
    }
}

#[test]
fn a_handle_of_the_wrong_type_reads_as_stale() {
    let mut groups = cell(Mode::Grouped);
    let word = groups.register::<u64>("word", 1);
    let root = groups.open_root(Nanos(1_000)).expect("root");
    let handle = groups.alloc(root, word, 5).expect("room");
    assert_eq!(
        groups.get(leasehold_reclaim::Handle::<[u8; 8]>::from_raw(handle.raw())),
        None
    );
    assert_eq!(
        groups.free(leasehold_reclaim::Handle::<&'static str>::from_raw(
            handle.raw()
        )),
        None
    );
    assert_eq!(
        groups.get(leasehold_reclaim::Handle::<u64>::from_raw(handle.raw())),
        Some(&5)
    );
}

#[test]
fn a_handle_means_nothing_to_other_groups_tables() {
    let mut first = cell(Mode::Grouped);
    let class = first.register::<u64>("word", 1);
    let root = first.open_root(Nanos(1_000)).expect("root");
    let handle = first.alloc(root, class, 5).expect("room");
    for _ in 0..3 {
        let mut other = cell(Mode::Grouped);
        let class = other.register::<u64>("word", 1);
        let root = other.open_root(Nanos(1_000)).expect("root");
        let theirs = other.alloc(root, class, 6).expect("room");
        assert_eq!(other.get(handle), None);
        assert_eq!(first.get(theirs), None);
    }
    drop(first);
    let mut next = cell(Mode::Grouped);
    let class = next.register::<u64>("word", 1);
    let root = next.open_root(Nanos(1_000)).expect("root");
    next.alloc(root, class, 7).expect("room");
    assert_eq!(
        next.get(handle),
        None,
        "the number was handed on, the generations went on"
    );
}

#[test]
fn a_recycled_slot_is_paid_for_and_a_fresh_one_is_charged() {
    let mut groups = cell(Mode::Grouped);
    let class = groups.register::<u64>("word", 70);
    let root = groups.open_root(Nanos(1_000)).expect("root");
    let first = groups.alloc(root, class, 1).expect("room");
    let before = left(&groups, root);
    groups.free(first).expect("there");
    groups.alloc(root, class, 2).expect("room");
    assert_eq!(left(&groups, root), before);
    groups.alloc(root, class, 3).expect("room");
    assert_eq!(left(&groups, root), before - 70);
}

#[test]
fn a_slot_of_a_cheap_class_does_not_pay_for_an_object_of_a_dear_one() {
    let mut groups = cell(Mode::Grouped);
    let cheap = groups.register::<u64>("cheap", 1);
    let dear = groups.register::<u64>("dear", 10_000);
    let root = groups.open_root(Nanos(1_000)).expect("root");
    let handle = groups.alloc(root, cheap, 1).expect("room");
    groups.free(handle).expect("there");
    let before = left(&groups, root);
    groups.alloc(root, dear, 2).expect("room");
    assert_eq!(left(&groups, root), before - 10_000);
}

#[test]
fn the_last_picosecond_can_be_charged_and_no_more() {
    let mut groups = cell(Mode::Grouped);
    let pages = groups.register_resource("pages", 1_000);
    let root = groups.open_root(Nanos(13)).expect("root");
    assert_eq!(
        groups.charge(root, pages, 4),
        Err(Refused::Budget {
            needed: Picos(4_000),
            left: Picos(3_000)
        })
    );
    groups.charge(root, pages, 3).expect("fits");
    assert!(groups.charge(root, pages, 1).is_err());
    groups.refund(root, pages, 1);
    groups.charge(root, pages, 1).expect("fits again");
    groups.refund(root, pages, u64::MAX);
    assert_eq!(
        left(&groups, root),
        3_000,
        "no more is refunded than was charged"
    );
    assert!(groups.charge(root, pages, u64::MAX).is_err(), "no overflow");
}

#[test]
fn a_child_takes_its_budget_from_its_parent_and_gives_it_back() {
    let mut groups = cell(Mode::Grouped);
    let pages = groups.register_resource("pages", 1_000);
    let root = groups.open_root(Nanos(100)).expect("root");
    let before = groups.statement(root).expect("alive");
    let child = groups.open_child(root, Nanos(50)).expect("child");
    assert_eq!(left(&groups, root), before.left.0 - 52_000);
    assert_eq!(groups.parent_of(child), Some(root));
    assert_eq!(groups.root_of(child), Some(root));
    groups.charge(child, pages, 50).expect("fits");
    assert!(
        groups.charge(child, pages, 1).is_err(),
        "not the parent's to spend"
    );
    assert!(
        groups.open_child(root, Nanos(37)).is_err(),
        "38 are left, and a group costs 2"
    );
    end(&mut groups, child);
    let mut after = groups.statement(root).expect("alive");
    let peak = std::mem::replace(&mut after.peak, before.peak);
    assert_eq!(after, before);
    assert_eq!(
        peak.0,
        before.charged.0 + 52_000,
        "what was charged at once stays known"
    );
}

#[test]
fn a_links_charge_comes_back_when_it_is_unlinked() {
    let mut groups = cell(Mode::Grouped);
    let root = groups.open_root(Nanos(1_000)).expect("root");
    let first = groups.link(root, 1).expect("room");
    assert_eq!(groups.unlink(first), Some(1));
    let before = left(&groups, root);
    let second = groups.link(root, 2).expect("room");
    assert_eq!(left(&groups, root), before - COSTS.scrub_ps);
    assert_eq!(groups.unlink(first), None);
    assert_eq!(groups.unlink(second), Some(2));
    assert_eq!(left(&groups, root), before);
}

#[test]
fn ending_a_root_severs_the_links_of_its_whole_tree_once() {
    for mode in [Mode::Grouped, Mode::Individual] {
        let mut groups = cell(mode);
        let root = groups.open_root(Nanos(10_000)).expect("root");
        let child = groups.open_child(root, Nanos(5_000)).expect("child");
        let grandchild = groups.open_child(child, Nanos(1_000)).expect("grandchild");
        let gone = groups.link(child, 9).expect("room");
        for (group, link) in [(root, 1), (child, 2), (grandchild, 3), (grandchild, 4)] {
            groups.link(group, link).expect("room");
        }
        groups.unlink(gone).expect("there");
        let mut severed = Vec::new();
        let outcome = groups.reclaim(root, &mut |groups: &mut Cell, link| {
            assert!(!groups.is_alive(grandchild));
            severed.push(link);
        });
        severed.sort_unstable();
        assert_eq!(severed, [1, 2, 3, 4]);
        assert_eq!((outcome.scrubbed, outcome.groups), (4, 3));
    }
}

#[test]
fn reclamation_stops_where_its_limit_says_and_goes_on() {
    let mut groups = cell(Mode::Grouped);
    let root = groups.open_root(Nanos(1_000)).expect("root");
    for link in 0..10 {
        groups.link(root, link).expect("room");
    }
    let mut severed = 0;
    let mut count = |_: &mut Cell, _| severed += 1;
    let mut reclaim = groups.begin_reclaim(root).expect("alive");
    assert!(groups.begin_reclaim(root).is_none());
    assert_eq!(reclaim.step(&mut groups, &mut count, 4), Progress::Working);
    assert_eq!(reclaim.outcome().scrubbed, 4);
    assert_eq!(reclaim.step(&mut groups, &mut count, 6), Progress::Working);
    assert_eq!(reclaim.step(&mut groups, &mut count, 1), Progress::Done);
    assert_eq!(severed, 10);
}

#[test]
fn bytes_read_zero_to_the_next_group() {
    for (mode, keep) in [
        (Mode::Grouped, 64 << 20),
        (Mode::Grouped, 0),
        (Mode::Individual, 0),
    ] {
        let config = Config {
            arena_bytes: 8 << 20,
            keep_resident: keep,
            mode,
            max_groups: 8,
        };
        let mut groups = Groups::<_, u32>::new(config, COSTS, HeapBacking);
        for len in [1, 100, 4_000, 10_000, 10_000, 100_000, 5_000, 40] {
            let root = groups.open_root(Nanos(1_000_000)).expect("root");
            for _ in 0..3 {
                let extent = groups.alloc_bytes(root, len).expect("room");
                let bytes = groups.bytes_mut(extent).expect("there");
                assert_eq!(bytes.len(), len);
                assert!(bytes.iter().all(|&byte| byte == 0));
                bytes.fill(0xAA);
                if len % 3 == 1 {
                    assert!(groups.free_bytes(extent));
                    assert!(groups.bytes(extent).is_none() && !groups.free_bytes(extent));
                }
            }
            end(&mut groups, root);
        }
    }
}

#[test]
fn a_large_extent_pays_for_the_pages_it_starts_and_a_longer_one_in_its_place_for_the_rest() {
    let mut groups = cell(Mode::Grouped);
    let root = groups.open_root(Nanos(1_000_000)).expect("root");
    let start = left(&groups, root);
    let extent = groups.alloc_bytes(root, 4 * PAGE).expect("room");
    assert_eq!(
        start - left(&groups, root),
        5 * COSTS.page_ps + COSTS.chunk_ps
    );
    assert!(groups.free_bytes(extent));
    let extent = groups.alloc_bytes(root, 6 * PAGE).expect("room");
    assert_eq!(
        start - left(&groups, root),
        7 * COSTS.page_ps + COSTS.chunk_ps
    );
    assert!(groups.free_bytes(extent));
    groups.alloc_bytes(root, 5 * PAGE).expect("room");
    assert_eq!(
        start - left(&groups, root),
        7 * COSTS.page_ps + COSTS.chunk_ps
    );
}

#[test]
fn a_root_may_use_at_most_its_arena() {
    let mut groups = cell(Mode::Grouped);
    let root = groups.open_root(Nanos(1_000_000_000)).expect("root");
    assert_eq!(groups.alloc_bytes(root, 9 << 20), Err(Refused::Memory));
    assert_eq!(groups.alloc_bytes(root, usize::MAX), Err(Refused::Memory));
    let before = left(&groups, root);
    assert_eq!(groups.alloc_bytes(root, 8 << 20), Err(Refused::Memory));
    assert_eq!(left(&groups, root), before);
    groups.alloc_bytes(root, 3 << 20).expect("room");
}

#[test]
fn a_root_may_use_at_most_its_limit_and_the_next_one_in_its_arena_its_own() {
    let mut groups = cell(Mode::Grouped);
    let fill = |groups: &mut Cell, limit: Option<u64>| {
        let root = groups.open_root(Nanos(1 << 40)).expect("a root");
        if let Some(bytes) = limit {
            groups.limit_root(root, bytes).expect("alive");
        }
        let child = groups.open_child(root, Nanos(1 << 39)).expect("a child");
        let mut bytes = 0;
        for group in [child, root] {
            while groups.alloc_bytes(group, 64 << 10).is_ok() {
                bytes += 64 << 10;
            }
        }
        end(groups, root);
        assert_eq!(groups.limit_root(root, 1), Err(Refused::Stale));
        bytes
    };
    let most = fill(&mut groups, None);
    assert!(most > 3 << 20, "{most}");
    let limited = fill(&mut groups, Some(1 << 20));
    assert!((256 << 10..=1 << 20).contains(&limited), "{limited}");
    assert_eq!(fill(&mut groups, Some(0)), 0);
    assert_eq!(fill(&mut groups, Some(u64::MAX)), most);
    assert_eq!(fill(&mut groups, None), most);
}

#[test]
fn the_table_is_full_at_its_size_and_usable_after_an_end() {
    let mut groups = cell(Mode::Grouped);
    let root = groups.open_root(Nanos(1_000_000)).expect("root");
    for _ in 1..MOST {
        groups.open_child(root, Nanos(1)).expect("child");
    }
    let before = left(&groups, root);
    assert_eq!(
        groups.open_child(root, Nanos(1)),
        Err(Refused::TooManyGroups)
    );
    assert_eq!(groups.open_root(Nanos(100)), Err(Refused::TooManyGroups));
    assert_eq!(left(&groups, root), before);
    assert_eq!(end(&mut groups, root).groups, u64::from(MOST));
    let root = groups.open_root(Nanos(1_000_000)).expect("root");
    for _ in 1..MOST {
        groups.open_child(root, Nanos(1)).expect("child");
    }
}

#[test]
fn every_record_of_ended_trees_can_be_had_again() {
    let mut groups = cell(Mode::Grouped);
    let plenty = Nanos(1_000_000);
    for _ in 0..3 {
        let trees = [3, 0, 1, 5].map(|children| {
            let root = groups.open_root(plenty).expect("root");
            for _ in 0..children {
                groups.open_child(root, Nanos(10)).expect("child");
            }
            root
        });
        for root in trees {
            end(&mut groups, root);
        }
        let root = groups.open_root(plenty).expect("root");
        let mut ids = vec![root];
        for _ in 1..MOST {
            ids.push(groups.open_child(root, Nanos(10)).expect("child"));
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), MOST as usize, "every group is another one");
        assert_eq!(
            groups.open_child(root, Nanos(10)),
            Err(Refused::TooManyGroups)
        );
        end(&mut groups, root);
    }
}

#[test]
fn the_groups_below_an_ending_child_are_stale_before_anything_is_severed() {
    let mut groups = cell(Mode::Grouped);
    let root = groups.open_root(Nanos(10_000)).expect("root");
    let child = groups.open_child(root, Nanos(5_000)).expect("child");
    let below = [(); 2].map(|()| groups.open_child(child, Nanos(1_000)).expect("grandchild"));
    for group in below {
        groups.link(group, 1).expect("room");
    }
    let outcome = groups.reclaim(child, &mut |groups: &mut Cell, _| {
        assert!(below.iter().all(|&group| !groups.is_alive(group)));
        assert!(
            below
                .iter()
                .all(|&group| groups.link(group, 2) == Err(Refused::Stale))
        );
        assert!(groups.is_alive(root));
    });
    assert_eq!((outcome.scrubbed, outcome.groups), (2, 3));
}

#[test]
fn a_longer_extent_in_the_place_of_a_freed_one_needs_budget_for_the_rest() {
    let mut groups = cell(Mode::Grouped);
    let rest = groups.register_resource("rest", 1);
    let root = groups.open_root(Nanos(1_000)).expect("root");
    let extent = groups.alloc_bytes(root, 4 * PAGE).expect("room");
    assert!(groups.free_bytes(extent));
    let spare = left(&groups, root) - COSTS.page_ps;
    groups.charge(root, rest, spare).expect("fits");
    let needed = Picos(2 * COSTS.page_ps);
    let left = Picos(COSTS.page_ps);
    assert_eq!(
        groups.alloc_bytes(root, 6 * PAGE),
        Err(Refused::Budget { needed, left })
    );
    let extent = groups
        .alloc_bytes(root, 5 * PAGE)
        .expect("the refused one left the place free");
    assert_eq!(groups.bytes(extent).expect("there").len(), 5 * PAGE);
}

#[test]
fn reclamations_of_a_group_and_of_one_below_it_can_alternate() {
    for (mode, first, turns) in [Mode::Grouped, Mode::Individual]
        .into_iter()
        .flat_map(|mode| (0..12).map(move |first| (mode, first)))
        .flat_map(|(mode, first)| (1..4).map(move |turns| (mode, first, turns)))
    {
        let mut groups = cell(mode);
        let root = groups.open_root(Nanos(1_000_000)).expect("root");
        let before = left(&groups, root);
        let upper = groups.open_child(root, Nanos(900_000)).expect("group");
        let lower = groups.open_child(upper, Nanos(100_000)).expect("group");
        let leaves = [upper, lower, lower, lower]
            .map(|parent| groups.open_child(parent, Nanos(10_000)).expect("group"));
        for (link, &group) in (0..).zip([upper, lower].iter().chain(&leaves)) {
            groups.link(group, link).expect("room");
        }
        let mut severed = Vec::new();
        let mut sever = |_: &mut Cell, link| severed.push(link);
        let mut of_lower = groups.begin_reclaim(lower).expect("alive");
        for _ in 0..first {
            of_lower.step(&mut groups, &mut sever, 1);
        }
        let mut of_upper = groups.begin_reclaim(upper).expect("alive");
        loop {
            let upper = (0..turns)
                .map(|_| of_upper.step(&mut groups, &mut sever, 1))
                .last();
            let lower = of_lower.step(&mut groups, &mut sever, 1);
            if upper == Some(Progress::Done) && lower == Progress::Done {
                break;
            }
        }
        severed.sort_unstable();
        assert_eq!(severed, [0, 1, 2, 3, 4, 5]);
        assert_eq!(of_upper.outcome().groups + of_lower.outcome().groups, 6);
        let residue = before - left(&groups, root);
        assert!(
            residue < 10_000,
            "all but what the entries' chunks cost came back: {residue}"
        );
        for _ in 1..MOST {
            groups.open_child(root, Nanos(0)).expect("a record");
        }
        assert_eq!(
            groups.open_child(root, Nanos(0)),
            Err(Refused::TooManyGroups)
        );
    }
}
