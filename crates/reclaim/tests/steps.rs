//! Invariant 2: the work of ending a group is counted, and does not grow with its objects.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;

use leasehold_reclaim::{
    Backing, Config, CostModel, GroupId, Groups, HeapBacking, Mode, Nanos, Outcome, PAGE, Progress,
    SLICE,
};

const COSTS: CostModel = CostModel {
    root_ps: 10_000,
    group_ps: 2_000,
    scrub_ps: 5_000,
    chunk_ps: 300,
    page_ps: 25_600,
};
const PLENTY: Nanos = Nanos(1 << 50);

const OBJECTS: usize = if cfg!(miri) { 1_000 } else { 1_000_000 };
const CHILDREN: u32 = if cfg!(miri) { 50 } else { 100_000 };
const ARENA: usize = if cfg!(miri) { 4 << 20 } else { 64 << 20 };

/// A heap that counts.
#[derive(Debug, Clone, Default)]
struct Counting(Rc<RefCell<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    reserved: usize,
    released: usize,
    discarded_pages: usize,
    longest_slice: usize,
}

// SAFETY: all memory comes from `HeapBacking`.
unsafe impl Backing for Counting {
    fn reserve(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        self.0.borrow_mut().reserved += 1;
        HeapBacking.reserve(bytes)
    }

    unsafe fn discard(&mut self, start: NonNull<u8>, bytes: usize) {
        let mut counts = self.0.borrow_mut();
        counts.discarded_pages += bytes / PAGE;
        counts.longest_slice = counts.longest_slice.max(bytes / PAGE);
        // SAFETY: as the caller says.
        unsafe { HeapBacking.discard(start, bytes) };
    }

    unsafe fn release(&mut self, start: NonNull<u8>, bytes: usize) {
        self.0.borrow_mut().released += 1;
        // SAFETY: as the caller says.
        unsafe { HeapBacking.release(start, bytes) };
    }
}

type Cell = Groups<Counting, u32>;

fn cell(mode: Mode, keep_resident: usize) -> (Cell, Counting) {
    let config = Config {
        arena_bytes: ARENA,
        keep_resident,
        mode,
        max_groups: CHILDREN + 100,
    };
    let counting = Counting::default();
    (Groups::new(config, COSTS, counting.clone()), counting)
}

fn end(groups: &mut Cell, group: GroupId) -> Outcome {
    groups.reclaim(group, &mut |_: &mut Cell, _| {})
}

/// Ends a root, or a child alone, with so many objects.
fn end_with_objects(mode: Mode, keep_resident: usize, n: usize, below_root: bool) -> Outcome {
    let (mut groups, _) = cell(mode, keep_resident);
    let class = groups.register::<[u64; 3]>("semaphore", 500);
    let root = groups.open_root(PLENTY).expect("root");
    let group = if below_root {
        groups.open_child(root, Nanos(1 << 40)).expect("child")
    } else {
        root
    };
    for i in 0..n as u64 {
        groups.alloc(group, class, [i; 3]).expect("room");
    }
    end(&mut groups, group)
}

#[test]
fn ending_a_group_takes_the_same_steps_whatever_it_holds() {
    for keep_resident in [0, ARENA] {
        for below_root in [false, true] {
            let few = end_with_objects(Mode::Grouped, keep_resident, 10, below_root);
            let many = end_with_objects(Mode::Grouped, keep_resident, OBJECTS, below_root);
            assert_eq!(few.steps, 2);
            assert_eq!(many.steps, few.steps);
            assert_eq!(many.objects, 0);
        }
    }
}

#[test]
fn one_by_one_every_object_is_a_step() {
    let few = end_with_objects(Mode::Individual, 0, 10, false);
    let many = end_with_objects(Mode::Individual, 0, OBJECTS, false);
    assert_eq!((few.objects, many.objects), (10, OBJECTS as u64));
    assert_eq!(many.steps - few.steps, OBJECTS as u64 - 10);
}

#[test]
fn ending_a_root_takes_the_same_steps_whatever_groups_are_below_it() {
    let outcome = |children: u32, deep: bool| {
        let (mut groups, _) = cell(Mode::Grouped, ARENA);
        let root = groups.open_root(PLENTY).expect("root");
        let mut parent = root;
        for depth in 0..u64::from(children) {
            let budget = if deep { (1 << 49) - depth * 4 } else { 1 };
            let child = groups.open_child(parent, Nanos(budget)).expect("room");
            if deep {
                parent = child;
            }
        }
        let outcome = end(&mut groups, root);
        assert_eq!(outcome.groups, u64::from(children) + 1);
        // Their records can be used again.
        let root = groups.open_root(PLENTY).expect("record");
        for _ in 0..CHILDREN + 99 {
            groups.open_child(root, Nanos(0)).expect("record");
        }
        outcome.steps
    };
    for deep in [false, true] {
        assert_eq!(outcome(10, deep), 2);
        assert_eq!(outcome(CHILDREN, deep), 2);
    }
}

#[test]
fn ending_a_root_takes_a_step_for_every_scrub_entry_wherever_it_is() {
    let (mut groups, _) = cell(Mode::Grouped, ARENA);
    let root = groups.open_root(PLENTY).expect("root");
    let children: Vec<_> = (0..100)
        .map(|_| groups.open_child(root, Nanos(1_000)).expect("child"))
        .collect();
    for child in children.iter().step_by(10) {
        groups.link(*child, 0).expect("room");
        groups.link(*child, 1).expect("room");
    }
    let outcome = end(&mut groups, root);
    assert_eq!((outcome.scrubbed, outcome.steps), (20, 22));
}

#[test]
fn pages_of_a_large_arena_go_back_in_slices_and_a_small_one_keeps_them() {
    let (mut groups, counting) = cell(Mode::Grouped, 100 * PAGE);
    for (pages, kept) in [(50, true), (200, false)] {
        let root = groups.open_root(PLENTY).expect("root");
        groups.alloc_bytes(root, pages * PAGE).expect("room");
        let outcome = end(&mut groups, root);
        assert_eq!(outcome.pages_discarded == 0, kept);
        assert_eq!(outcome.pages_kept > 0, kept);
        assert_eq!(
            outcome.slices,
            outcome.pages_discarded.div_ceil(SLICE as u64)
        );
    }
    let counts = counting.0.borrow();
    assert!(counts.discarded_pages >= 200 && counts.longest_slice <= SLICE);
    assert_eq!(counts.reserved, 1, "the switched arena came back clean");
}

#[test]
fn a_group_is_usable_again_before_its_pages_are_back() {
    let (mut groups, counting) = cell(Mode::Grouped, 0);
    let sever = &mut |_: &mut Cell, _| {};
    let root = groups.open_root(PLENTY).expect("root");
    groups.alloc_bytes(root, 150 * PAGE).expect("room");
    let mut reclaim = groups.begin_reclaim(root).expect("alive");
    assert_eq!(reclaim.step(&mut groups, sever, 1), Progress::Reusable);
    assert_eq!(counting.0.borrow().discarded_pages, 0);
    let next = groups.open_root(PLENTY).expect("another arena");
    assert_eq!(counting.0.borrow().reserved, 2);
    assert_eq!(reclaim.step(&mut groups, sever, 1), Progress::Reusable);
    assert_eq!(counting.0.borrow().discarded_pages, SLICE);
    // Another caller does the rest.
    while groups.clean_step(10) > 0 {}
    assert_eq!(reclaim.step(&mut groups, sever, 1), Progress::Done);
    end(&mut groups, next);
}

#[test]
fn tenants_that_come_and_go_leave_the_host_as_it_was() {
    let (mut groups, counting) = cell(Mode::Grouped, 4 * PAGE);
    let class = groups.register::<u64>("word", 500);
    for i in 0..if cfg!(miri) { 20 } else { 1_000 } {
        let root = groups.open_root(PLENTY).expect("root");
        for word in 0..i % 5 * 600 {
            groups.alloc(root, class, word).expect("room");
        }
        end(&mut groups, root);
    }
    assert_eq!(counting.0.borrow().reserved, 1);
    drop(groups);
    assert_eq!(counting.0.borrow().released, 1);
}

#[test]
fn pages_that_an_ended_child_touched_stay_charged_to_its_parent_once() {
    let (mut groups, _) = cell(Mode::Grouped, ARENA);
    let class = groups.register::<[u64; 3]>("semaphore", 500);
    let root = groups.open_root(PLENTY).expect("root");
    let charged = |groups: &Cell| groups.statement(root).expect("alive").charged.0;
    let start = charged(&groups);
    let round = |groups: &mut Cell, objects: u64, pages: usize| {
        let child = groups.open_child(root, Nanos(1 << 30)).expect("child");
        for i in 0..objects {
            groups.alloc(child, class, [i; 3]).expect("room");
        }
        if pages > 0 {
            groups.alloc_bytes(child, pages * PAGE).expect("room");
        }
        end(groups, child);
        charged(groups) - start
    };
    let first = round(&mut groups, 1_000, 10);
    assert!(
        first >= 1_000 * 500 + 11 * COSTS.page_ps,
        "{first} for what stays resident"
    );
    for _ in 0..20 {
        assert_eq!(round(&mut groups, 1_000, 10), first, "the same pages again");
    }
    assert_eq!(round(&mut groups, 900, 9), first, "fewer of them");
    let more = round(&mut groups, 1_000, 12);
    assert_eq!(
        more,
        first + 2 * COSTS.page_ps,
        "two pages of the extent were new"
    );
}

#[test]
fn pages_of_a_grandchild_stay_charged_when_its_parent_ends_as_well() {
    let (mut groups, _) = cell(Mode::Grouped, ARENA);
    let root = groups.open_root(PLENTY).expect("root");
    let start = groups.statement(root).expect("alive").charged.0;
    let child = groups.open_child(root, Nanos(1 << 30)).expect("child");
    let grandchild = groups
        .open_child(child, Nanos(1 << 20))
        .expect("grandchild");
    groups.alloc_bytes(grandchild, 10 * PAGE).expect("room");
    end(&mut groups, grandchild);
    end(&mut groups, child);
    let stays = groups.statement(root).expect("alive").charged.0 - start;
    assert_eq!(stays, 11 * COSTS.page_ps + COSTS.chunk_ps);
}
