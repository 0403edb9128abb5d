//! What is shared, how isolated that makes, and what the tables say.

use leasehold_lockscope::{
    Access, Class, Comparison, Kernel, Kind, Losses, MOST, Mode, Object, Place, PlaceId, Primitive,
    PrimitiveId, Report, Score, Separation, Symbol, Trace, Use, Workload, WorkloadId, locks,
};
use proptest::prelude::{Strategy, any, prop_assert, proptest};

const SECOND: u64 = 1_000_000_000;

fn trace(uses: Vec<Use>) -> Trace {
    let primitive = |name: &str, class, access| Primitive {
        name: name.into(),
        class,
        access,
        tries: false,
    };
    let workload = |name: &str| Workload {
        name: name.into(),
        what: format!("run {name}"),
        ran_ns: SECOND,
        own_ns: 0,
    };
    let place = |file: &str, object| Place {
        function: "f".into(),
        file: file.into(),
        line: 1,
        object,
    };
    let member = |structure: &str, field: &str| Object::Member {
        structure: structure.into(),
        field: field.into(),
        offset: None,
    };
    Trace {
        name: "create".into(),
        mode: Mode::Full,
        platform: "host".into(),
        classes: vec![Class::Spin, Class::Rwsem],
        duration_ns: SECOND,
        kernel: Kernel {
            data: (0xffff_ffff_8200_0000, 0xffff_ffff_8300_0000),
            ..Kernel::default()
        },
        workloads: vec![workload("a"), workload("b")],
        primitives: vec![
            primitive("_raw_spin_lock", Class::Spin, Access::Exclusive),
            primitive("down_read", Class::Rwsem, Access::Shared),
            primitive("down_write", Class::Rwsem, Access::Exclusive),
        ],
        symbols: vec![Symbol {
            address: TASKLIST,
            name: "tasklist_lock".into(),
            offset: 0,
            module: None,
        }],
        places: vec![
            place("fs/jbd2/journal.c", member("journal_s", "j_list_lock")),
            place(
                "kernel/futex/core.c",
                Object::Element {
                    container: "futex_queues".into(),
                    field: "lock".into(),
                },
            ),
        ],
        uses,
        ..Trace::default()
    }
}

const TASKLIST: u64 = 0xffff_ffff_8200_1000;
const JOURNAL: u64 = 0xffff_8880_0000_1000;
const BUCKET: u64 = 0xffff_8880_0000_2000;

/// `count` acquisitions all over the recording, each held for a microsecond.
fn used(lock: u64, workload: u8, count: u64) -> Use {
    Use {
        lock,
        workload: WorkloadId(workload),
        acquired: count,
        held: count,
        hold_ns: count * 1_000,
        hold_max_ns: 1_000,
        first_ns: 10,
        last_ns: SECOND - 10,
        ..Use::default()
    }
}

fn with(used: Use, primitive: u16) -> Use {
    Use {
        primitive: PrimitiveId(primitive),
        ..used
    }
}

#[test]
fn a_lock_that_both_take_is_shared_and_one_that_one_takes_is_private() {
    let report = Report::of(&trace(vec![
        used(TASKLIST, 0, 3),
        used(TASKLIST, 1, 5),
        used(JOURNAL, 0, 7),
    ]));
    assert_eq!((report.shared.locks, report.shared.per_second), (1, 8.0));
    assert_eq!(report.workloads[0].private.locks, 1);
    assert_eq!(report.workloads[0].private.per_second, 7.0);
    assert_eq!(report.workloads[1].private.locks, 0);
    assert_eq!(report.workloads[1].taken.per_second, 5.0);
}

#[test]
fn an_address_that_is_given_away_is_not_shared() {
    let early = Use {
        last_ns: 100,
        ..used(JOURNAL, 0, 3)
    };
    let late = Use {
        first_ns: 200,
        ..used(JOURNAL, 1, 3)
    };
    let report = Report::of(&trace(vec![early.clone(), late.clone()]));
    assert_eq!((report.shared.locks, report.successive), (0, 1));
    // Initialised anew in between, they are two locks, whenever they were used.
    let again = Use {
        generation: 1,
        ..used(JOURNAL, 1, 3)
    };
    let report = Report::of(&trace(vec![used(JOURNAL, 0, 3), again]));
    assert_eq!((report.shared.locks, report.successive), (0, 0));
    assert_eq!(report.workloads[1].private.locks, 1);
}

#[test]
fn locks_are_named_by_object_then_by_symbol_then_by_the_function_that_takes_them() {
    let journal = |workload| Use {
        place: Some(PlaceId(0)),
        ..used(JOURNAL, workload, 9)
    };
    let bucket = |workload| Use {
        place: Some(PlaceId(1)),
        ..used(BUCKET, workload, 5)
    };
    let trace = trace(vec![
        journal(0),
        journal(1),
        bucket(0),
        bucket(1),
        used(TASKLIST, 0, 2),
        used(TASKLIST, 1, 2),
        used(0xffff_8880_0000_9000, 0, 1),
    ]);
    let found: Vec<_> = locks(&trace)
        .into_iter()
        .map(|lock| (lock.name, lock.kind, lock.subsystem))
        .collect();
    let row = |name: &str, kind, subsystem: &str| (name.to_owned(), kind, subsystem.to_owned());
    assert_eq!(
        found,
        [
            row("journal_s.j_list_lock", Kind::Object, "fs"),
            row("futex_queues[].lock", Kind::Incidental, "kernel"),
            row("tasklist_lock", Kind::Global, "unknown"),
            row("spin taken by unknown code", Kind::Object, "unknown"),
        ]
    );
    let report = Report::of(&trace);
    assert_eq!(report.kinds[&Kind::Incidental].locks, 1);
    assert_eq!(report.subsystems["fs"].per_second, 18.0);
    let mapped = report.mapped.acquisitions.unwrap();
    assert!((mapped - 32.0 / 33.0).abs() < 1e-9);
}

#[test]
fn workloads_that_share_nothing_are_as_isolated_as_can_be() {
    let score = Score::of(&trace(vec![
        used(JOURNAL, 0, 1_000_000),
        used(BUCKET, 1, 1_000_000),
    ]));
    assert_eq!(score.score, MOST);
    assert!(score.measured);
}

#[test]
fn what_was_not_measured_has_no_score_no_holds_and_is_not_mapped() {
    let nothing = trace(vec![]);
    assert!(!Score::of(&nothing).measured);
    assert_eq!(Report::of(&nothing).mapped.acquisitions, None);
    assert_eq!(
        Comparison::of([&nothing]).rows["create"]["host"].score,
        None
    );
    // Waits for a lock that is not shared say nothing of other ones.
    let private = Use {
        held: 0,
        hold_ns: 0,
        ..used(JOURNAL, 0, 10)
    };
    let contended = Trace {
        mode: Mode::Contended,
        ..trace(vec![private])
    };
    assert!(!Score::of(&contended).measured);
    let taken = Report::of(&contended).workloads[0].taken;
    assert_eq!((taken.per_second, taken.holds_per_second), (10.0, 0.0));
}

#[test]
fn a_comparison_adds_up_what_was_lost() {
    let lossy = |acquisitions| Trace {
        losses: Losses {
            acquisitions,
            times: 1,
            ..Losses::default()
        },
        ..trace(vec![])
    };
    let table = Comparison::of([&lossy(3), &lossy(4)]);
    let losses = table.rows["create"]["host"].losses;
    assert_eq!((losses.acquisitions, losses.times), (7, 2));
}

#[test]
fn the_score_counts_nines_of_the_time_that_is_lost() {
    // 100,000 holds of 1 µs by the other one: a tenth of the time. 10,000 acquisitions, a tenth of
    // which find it taken for a further microsecond: 1 ms in a second. And 10,000 moves: 1 ms.
    let score = Score::of(&trace(vec![
        used(JOURNAL, 0, 10_000),
        used(JOURNAL, 1, 100_000),
    ]));
    let a = &score.exposures[0];
    assert_eq!((a.of.as_str(), a.to.as_str()), ("a", "b"));
    assert!((a.slowdown - 1.002).abs() < 1e-9, "{a:?}");
    assert!((a.waiting - 1e-3 / 1.002).abs() < 1e-9, "{a:?}");
    assert!((a.moving - 1e-3 / 1.002).abs() < 1e-9, "{a:?}");
    assert!((score.score - 2.6998).abs() < 1e-3, "{}", score.score);
    assert!(!score.upper_bound);
}

#[test]
fn the_cheapest_separation_is_one_that_takes_half_of_the_loss_away() {
    // The journal is a file system's, the list of tasks the kernel's: nine tenths of what is lost, and one tenth.
    let of = |journal: u64, tasks: u64| {
        let journal = |workload| Use {
            place: Some(PlaceId(0)),
            ..used(JOURNAL, workload, journal)
        };
        let tasks = |workload| used(TASKLIST, workload, tasks);
        Report::of(&trace(vec![journal(0), journal(1), tasks(0), tasks(1)]))
    };
    let report = of(90_000, 10_000);
    let separations: Vec<_> = report.replays.iter().map(|one| one.separation).collect();
    assert_eq!(separations, [Separation::FileSystem, Separation::Kernel]);
    let [own_files, own_kernel] = report.replays[..] else {
        panic!("two");
    };
    assert_eq!((own_files.locks, own_files.per_second), (1, 180_000.0));
    let tasks_only = Score::of(&trace(vec![
        used(TASKLIST, 0, 10_000),
        used(TASKLIST, 1, 10_000),
    ]));
    assert!(
        (own_files.score - tasks_only.score).abs() < 0.1,
        "{own_files:?}"
    );
    assert_eq!((own_kernel.score, own_kernel.with_cheaper), (MOST, MOST));
    assert_eq!(
        report.cheapest.map(|one| one.separation),
        Some(Separation::FileSystem)
    );
    // The other way round a file system of its own is not worth it.
    let report = of(10_000, 90_000);
    assert_eq!(
        report.cheapest.map(|one| one.separation),
        Some(Separation::Kernel)
    );
    let nothing = Report::of(&trace(vec![used(JOURNAL, 0, 1)]));
    assert!(nothing.replays.is_empty() && nothing.cheapest.is_none());
}

#[test]
fn two_separations_are_advised_where_neither_is_enough() {
    let mut trace = trace(Vec::new());
    trace.places.push(Place {
        object: Object::Member {
            structure: "lruvec".into(),
            field: "lru_lock".into(),
            offset: None,
        },
        ..trace.places[0].clone()
    });
    let third = trace.places.len() as u32 - 1;
    for workload in [0, 1] {
        for (lock, place) in [(JOURNAL, 0), (BUCKET, third)] {
            trace.uses.push(Use {
                place: Some(PlaceId(place)),
                ..used(lock, workload, 40_000)
            });
        }
        trace.uses.push(used(TASKLIST, workload, 20_000));
    }
    let report = Report::of(&trace);
    let cheapest = report.cheapest.expect("one is enough");
    assert_eq!(
        (cheapest.separation, cheapest.with_cheaper),
        (Separation::FileSystem, true)
    );
}

#[test]
fn a_workload_that_the_tracer_held_up_does_its_work_sooner_without_it() {
    let uses = vec![used(JOURNAL, 0, 10_000), used(JOURNAL, 1, 100_000)];
    let alone = |own_ns| {
        let mut trace = trace(uses.clone());
        for workload in &mut trace.workloads {
            workload.own_ns = own_ns;
        }
        Score::of(&trace).exposures[0].slowdown - 1.0
    };
    // Untraced each does as much in half of the time: the lock is held twice as much, and taken twice as
    // often. It moves twice as often.
    assert!((alone(SECOND) - 2e-3).abs() < 1e-9);
    assert!((alone(SECOND / 2) - (4e-3 + 2e-3)).abs() < 1e-9);
}

#[test]
fn a_line_costs_what_was_measured_on_the_machine() {
    let trace = Trace {
        move_ns: Some(400),
        ..trace(vec![used(JOURNAL, 0, 10_000), used(JOURNAL, 1, 100_000)])
    };
    let a = &Score::of(&trace).exposures[0];
    assert!((a.moving * a.slowdown - 4e-3).abs() < 1e-9, "{a:?}");
}

#[test]
fn readers_do_not_wait_for_readers() {
    let of = |mine, theirs| {
        let uses = vec![
            with(used(JOURNAL, 0, 1_000), mine),
            with(used(JOURNAL, 1, 1_000), theirs),
        ];
        Score::of(&trace(uses)).exposures[0].waiting
    };
    const READ: u16 = 1;
    const WRITE: u16 = 2;
    assert_eq!(of(READ, READ), 0.0);
    assert!(of(READ, WRITE) > 0.0);
    assert!(of(WRITE, READ) > 0.0);
}

#[test]
fn a_contended_trace_gives_an_upper_bound() {
    let wait = |workload| Use {
        wait_ns: 1_000_000,
        contended: 10,
        held: 0,
        hold_ns: 0,
        ..used(JOURNAL, workload, 10)
    };
    let contended = Trace {
        mode: Mode::Contended,
        ..trace(vec![wait(0), wait(1)])
    };
    let score = Score::of(&contended);
    assert!(score.upper_bound);
    // Half of a wait of 1 ms is put down to the other one.
    assert!(
        (score.exposures[0].waiting - 5e-4).abs() < 1e-8,
        "{:?}",
        score.exposures
    );
}

#[test]
fn recordings_of_one_workload_are_averaged_for_each_platform() {
    let shared = |count| trace(vec![used(JOURNAL, 0, count), used(JOURNAL, 1, count)]);
    let none = trace(vec![]);
    let other = Trace {
        platform: "runc".into(),
        ..shared(1)
    };
    let table = Comparison::of([&shared(10), &shared(20), &none, &other]);
    assert_eq!(table.platforms, ["host", "runc"]);
    let host = table.rows["create"]["host"];
    assert_eq!(host.recordings, 3);
    assert!((host.shared - 2.0 / 3.0).abs() < 1e-9);
    assert!((host.per_second - 20.0).abs() < 1e-9);
    assert_eq!(
        (host.spread.least, host.spread.median, host.spread.most),
        (0.0, 20.0, 40.0)
    );
    assert!(host.score < table.rows["create"]["runc"].score);
    assert!(!table.mixed_modes);
    let contended = Trace {
        mode: Mode::Contended,
        ..none
    };
    assert!(Comparison::of([&shared(1), &contended]).mixed_modes);
}

fn uses() -> impl Strategy<Value = Vec<Use>> {
    let one = (
        0u64..4,
        0u8..2,
        0u16..3,
        0u64..1_000_000,
        0u64..100_000,
        0u64..SECOND,
    );
    let one = one.prop_map(|(lock, workload, primitive, count, hold, wait)| Use {
        hold_ns: count * hold,
        wait_ns: wait,
        contended: count.min(wait),
        ..with(used(JOURNAL + lock * 64, workload, count), primitive)
    });
    proptest::collection::vec(one, 0..12)
}

proptest! {
    #[test]
    fn sharing_one_more_lock_never_raises_the_score(before in uses(), count in 1u64..10_000) {
        let mut after = before.clone();
        after.extend([used(BUCKET, 0, count), used(BUCKET, 1, count)]);
        prop_assert!(Score::of(&trace(after)).score <= Score::of(&trace(before)).score);
    }

    #[test]
    fn holding_and_waiting_longer_never_raises_the_score(before in uses(), at in any::<proptest::sample::Index>(), by in 1u64..1_000) {
        let mut after = before.clone();
        if !after.is_empty() {
            let at = at.index(after.len());
            after[at].hold_ns *= by;
            after[at].wait_ns *= by;
        }
        prop_assert!(Score::of(&trace(after)).score <= Score::of(&trace(before)).score + 1e-12);
    }

    #[test]
    fn having_more_for_itself_never_lowers_the_score(uses in uses()) {
        let trace = trace(uses);
        let mut before = Score::of(&trace).score;
        for replay in Report::of(&trace).replays {
            prop_assert!(replay.with_cheaper >= before - 1e-12);
            prop_assert!(replay.with_cheaper >= replay.score - 1e-12);
            before = replay.with_cheaper;
        }
    }

    #[test]
    fn shared_and_private_add_up_to_what_was_taken(uses in uses()) {
        let report = Report::of(&trace(uses));
        let taken: f64 = report.workloads.iter().map(|workload| workload.taken.per_second).sum();
        let private: f64 = report.workloads.iter().map(|workload| workload.private.per_second).sum();
        prop_assert!((taken - private - report.shared.per_second).abs() < 1e-6 * taken.max(1.0));
        let kinds: u64 = report.kinds.values().map(|total| total.locks).sum();
        let subsystems: u64 = report.subsystems.values().map(|total| total.locks).sum();
        prop_assert!(kinds == report.shared.locks && subsystems == report.shared.locks);
    }
}
