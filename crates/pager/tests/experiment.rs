//! The paper's experiment in virtual time: figures 3, 8 and 9, and table III as it comes out when
//! the tasks run.

use leasehold_pager::Refused;
use leasehold_pager::simulate::{
    Disk, Experiment, History, MB, MS, Nanos, REGION, Scheme, TAU1, TAU2, Task,
};

/// By then τ2 has gone through the whole region twice, and everything has been written out once.
const WARM: Nanos = 10_000 * MS;
const END: Nanos = 20_000 * MS;

fn run(tasks: &[Task], scheme: Scheme) -> History {
    let experiment = Experiment::new(tasks.to_vec(), REGION, scheme);
    experiment.run(END).expect("large enough for a lock")
}

/// The fewest MB with which a task, alone, misses no deadline.
fn fewest_mb(task: Task) -> u32 {
    let suffices = |mb: &u32| run(&[task.with(mb * MB)], Scheme::Spc).missed(0) == 0;
    (1..=12).find(suffices).expect("twelve suffice")
}

#[test]
fn tau1_needs_11_mb_and_tau2_needs_2_mb() {
    // SPC fig. 8.
    assert_eq!(fewest_mb(TAU1), 11);
    assert_eq!(fewest_mb(TAU2), 2);
}

#[test]
fn with_10_mb_tau1_does_not_finish_its_first_job_within_10_periods() {
    let history = run(&[TAU1.with(10 * MB)], Scheme::Spc);
    let first = history.jobs[0][0];
    assert!(first.completion.expect("within 20 s") > 10 * TAU1.period);
    assert!(first.major > 2_000, "{first:?}");
}

#[test]
fn with_2_mb_tau2_completes_later_than_with_11_mb_but_in_time() {
    let response = |mb: u32| {
        let history = run(&[TAU2.with(mb * MB)], Scheme::Spc);
        let warm = history.jobs[0].iter().filter(|job| job.release >= WARM);
        let times = warm.filter_map(|job| Some(job.completion? - job.release));
        times.max().expect("jobs")
    };
    assert_eq!(response(11), TAU2.execution);
    assert!(
        (150 * MS..TAU2.period).contains(&response(2)),
        "{}",
        response(2)
    );
}

#[test]
fn without_management_tau1_misses_one_deadline_in_every_period_of_tau2() {
    // SPC fig. 9, top.
    let history = run(&[TAU1, TAU2], Scheme::Plain);
    for start in (WARM..END).step_by(TAU2.period as usize) {
        let inside = |release: Nanos| (start..start + TAU2.period).contains(&release);
        let jobs = history.jobs[0].iter().filter(|job| inside(job.release));
        let missed = jobs.filter(|job| job.is_missed(END)).count();
        assert_eq!(missed, 1, "in the period of τ2 that starts at {start}");
    }
    // Each job of τ2 costs τ1 the pages that the job before it read.
    assert_eq!(history.major_since(0, WARM), u64::from(TAU2.shared) * 20);
    // The one of lower priority is the one that meets its deadlines.
    assert_eq!(history.missed(1), 0);
}

#[test]
fn with_conservation_tau1_never_waits_however_slow_the_disk() {
    // SPC fig. 9, middle.
    let mut experiment = Experiment::new(vec![TAU1, TAU2], REGION, Scheme::Spc);
    for page in [MS / 10, MS, 10 * MS] {
        experiment.disk = Disk::with_page(page);
        let history = experiment.run(END).expect("no lock");
        assert_eq!((history.missed(0), history.major_since(0, 0)), (0, 0));
        assert_eq!((history.missed(1), history.major_since(1, 0)), (0, 0));
        let suspended = history.jobs[0].iter().map(|job| job.suspended);
        assert_eq!(suspended.sum::<Nanos>(), 0);
        // Paging took place: shared pages were unmapped from τ2, and from no other task.
        assert!(history.counts[1].unmapped > 5_000);
        assert_eq!(
            (history.counts[0].unmapped, history.counts[0].robbed),
            (0, 0)
        );
    }
}

#[test]
fn with_a_lock_no_tenant_faults() {
    // SPC fig. 9, bottom.
    let history = run(&[TAU1, TAU2.with(11 * MB)], Scheme::Spel);
    for task in 0..2 {
        assert_eq!((history.missed(task), history.major_since(task, 0)), (0, 0));
    }
    // What faults there are are first touches of private pages.
    assert_eq!(
        history.jobs[0].iter().map(|job| job.minor).sum::<u32>(),
        TAU1.private
    );
}

#[test]
fn a_lock_of_the_region_needs_more_than_tau2_has() {
    let experiment = Experiment::new(vec![TAU1, TAU2], REGION, Scheme::Spel);
    let (needed, size) = (REGION, 2 * MB);
    assert_eq!(experiment.run(END), Err(Refused::TooSmall { needed, size }));
}

#[test]
fn by_first_touch_the_order_of_tenants_matters() {
    let mut experiment = Experiment::new(vec![TAU1, TAU2], REGION, Scheme::FirstTouch);
    assert_eq!(experiment.run(END).expect("no lock").missed(0), 0);
    // With τ2 first, its 2 MB decide what is resident, until τ1 has read all of it again.
    experiment.first = 1;
    let history = experiment.run(END).expect("no lock");
    assert!(history.missed(0) > 5);
    assert_eq!(history.missed_since(0, WARM), 0);
}

#[test]
fn running_tasks_take_as_much_memory_as_in_table_3() {
    let cases = [
        ([11, 11], [TAU1, TAU1], Scheme::Plain, 12),
        ([11, 11], [TAU1, TAU1], Scheme::Spc, 22),
        ([11, 11], [TAU1, TAU1], Scheme::Spel, 12),
        ([2, 2], [TAU2, TAU2], Scheme::Plain, 3),
        ([2, 2], [TAU2, TAU2], Scheme::Spc, 4),
        ([11, 11], [TAU2, TAU2], Scheme::Spel, 12),
        ([11, 2], [TAU1, TAU2], Scheme::Plain, 12),
        ([11, 2], [TAU1, TAU2], Scheme::Spc, 13),
        ([11, 11], [TAU1, TAU2], Scheme::Spel, 12),
    ];
    for ([first, second], tasks, scheme, total) in cases {
        let tasks = [tasks[0].with(first * MB), tasks[1].with(second * MB)];
        let history = run(&tasks, scheme);
        assert_eq!(history.physical, total * MB, "{tasks:?} under {scheme:?}");
    }
}

#[test]
fn a_task_with_room_to_spare_waits_because_another_one_has_none() {
    // SPC fig. 3: twice the same program; 20 MB at high priority, 10 MB at low.
    let tasks = [TAU1.with(20 * MB), TAU1.with(10 * MB)];
    let plain = run(&tasks, Scheme::Plain);
    assert!(plain.missed(0) > 0 && plain.counts[0].robbed > 0);
    let managed = run(&tasks, Scheme::Spc);
    assert_eq!((managed.missed(0), managed.major_since(0, 0)), (0, 0));
}

#[test]
fn the_same_experiment_has_the_same_history() {
    let again = || run(&[TAU1, TAU2], Scheme::Plain);
    assert!(again() == again());
}

#[test]
fn no_two_tasks_run_at_the_same_time_and_slices_add_up_to_the_work_done() {
    let history = run(&[TAU1, TAU2], Scheme::Plain);
    let mut slices: Vec<_> = history.slices.concat();
    slices.sort_unstable();
    assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    for (task, parameters) in [TAU1, TAU2].iter().enumerate() {
        let done: Nanos = history.slices[task]
            .iter()
            .map(|&(from, to)| to - from)
            .sum();
        let jobs = history.jobs[task]
            .iter()
            .filter(|job| job.completion.is_some());
        let jobs = jobs.count() as Nanos;
        let counts = history.counts[task];
        let faults = 545 * (counts.major + counts.minor + counts.zero);
        let least = jobs * parameters.execution;
        assert!((least..=least + parameters.execution + faults).contains(&done));
    }
}
