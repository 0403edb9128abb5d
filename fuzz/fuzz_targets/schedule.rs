//! Any sequence of events at any times, in every order and shielding: nothing panics, a timer is
//! never due before it is set, replenishments add up to the budget, and a shielded invocation
//! touches at most two reservations.
#![no_main]

use arbitrary::Arbitrary;
use leasehold_reserve::{
    Config, Contract, INSTANT_MAX, Order, Policy, Priority, Refused, Scheduler, ServerId,
    Shielding, TaskId,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Script {
    by_deadline: bool,
    is_eager: bool,
    interrupt: u8,
    events: Vec<Event>,
}

#[derive(Debug, Arbitrary)]
struct Event {
    /// The time since the event before.
    after: u16,
    /// The delay between the event and the call of the scheduler.
    late: u8,
    who: u8,
    what: What,
}

#[derive(Debug, Arbitrary)]
enum What {
    AddServer(Terms),
    AddBackground(u8),
    JoinReplenishments(u8),
    RemoveServer,
    AddTask,
    RemoveTask,
    Wake,
    Block(Option<u16>),
    BlockRunning(Option<u16>),
    Pause(u8),
    Timer,
}

#[derive(Debug, Arbitrary)]
struct Terms {
    budget: u16,
    period: u32,
    priority: u8,
    nonpreemptive: u8,
    is_deferrable: bool,
    replenishments: u8,
    slice: u8,
}

impl Terms {
    fn contract(&self) -> Option<Contract> {
        let policy = if self.is_deferrable {
            Policy::Deferrable
        } else {
            Policy::Sporadic
        };
        Contract::new(u64::from(self.budget), u64::from(self.period))
            .and_then(|contract| contract.with_nonpreemptive(u64::from(self.nonpreemptive)))
            .and_then(|contract| contract.with_replenishments(u32::from(self.replenishments)))
            .ok()
            .map(|contract| {
                contract
                    .with_priority(Priority(self.priority))
                    .with_policy(policy)
                    .with_slice(u64::from(self.slice))
            })
    }
}

/// One of those there are, or were.
fn pick<T: Copy>(from: &[T], who: u8) -> Option<T> {
    from.get(usize::from(who) % from.len().max(1)).copied()
}

/// The conditions that hold after every invocation.
fn check(scheduler: &Scheduler, servers: &[ServerId]) {
    for &server in servers {
        let Ok(contract) = scheduler.contract(server) else {
            continue;
        };
        let Ok(entries) = scheduler.replenishments(server) else {
            continue;
        };
        let (mut total, mut count, mut last) = (0, 0, 0);
        for entry in entries {
            assert!(entry.amount > 0 && entry.at >= last);
            total += entry.amount;
            count += 1;
            last = entry.at;
        }
        assert!(count == 0 || total == contract.budget());
        assert!(count <= contract.replenishments());
    }
}

fuzz_target!(|script: Script| {
    let config = Config {
        order: if script.by_deadline {
            Order::EarliestDeadline
        } else {
            Order::FixedPriority
        },
        shielding: if script.is_eager {
            Shielding::Eager
        } else {
            Shielding::Shielded
        },
        servers: 6,
        tasks: 12,
        seed: 0,
    };
    let mut scheduler = Scheduler::new(config)
        .with_interrupt(u64::from(script.interrupt))
        .with_redispatch(u64::from(script.interrupt) / 2);
    let mut servers: Vec<ServerId> = Vec::new();
    let mut tasks: Vec<TaskId> = Vec::new();
    let mut now = 0;
    let mut timer = None;
    for Event {
        after,
        late,
        who,
        what,
    } in script.events
    {
        now += u64::from(after);
        let server = pick(&servers, who);
        let task = pick(&tasks, who);
        let until = |after: Option<u16>| after.map(|after| now + u64::from(after));
        let _: Result<(), Refused> = match (what, server, task) {
            (What::AddServer(terms), ..) => match terms.contract() {
                Some(contract) => scheduler
                    .add_server(&contract, now)
                    .map(|server| servers.push(server)),
                None => Ok(()),
            },
            (What::AddBackground(slice), ..) => scheduler
                .add_background(u64::from(slice))
                .map(|server| servers.push(server)),
            (What::JoinReplenishments(most), Some(server), _) => {
                scheduler.join_replenishments(server, u32::from(most), now)
            }
            (What::RemoveServer, Some(server), _) => scheduler.remove_server(server, now),
            (What::AddTask, Some(server), _) => {
                scheduler.add_task(server).map(|task| tasks.push(task))
            }
            (What::RemoveTask, _, Some(task)) => scheduler.remove_task(task, now),
            (What::Wake, _, Some(task)) => scheduler.wake(task, now),
            (What::Block(after), _, Some(task)) => scheduler.block(task, now, until(after)),
            (What::BlockRunning(after), ..) => match scheduler.running() {
                Some(task) => scheduler.block(task, now, until(after)),
                None => Ok(()),
            },
            (What::Pause(length), ..) => {
                scheduler.pause(now);
                now += u64::from(length);
                scheduler.resume(now);
                Ok(())
            }
            (What::Timer, ..) => {
                now = now.max(timer.unwrap_or(now));
                Ok(())
            }
            _ => Ok(()),
        };
        now += u64::from(late);
        // Time ends: a timer beyond the last instant, which a script waited for, does not fire.
        if now > INSTANT_MAX {
            break;
        }
        let decision = scheduler.schedule(now);
        timer = decision.timer;
        assert!(
            timer.is_none_or(|timer| timer > now),
            "{decision:?} at {now}"
        );
        assert_eq!(decision.run, scheduler.running());
        if !script.is_eager {
            assert!(
                decision.touched.is_none_or(|it| it <= 2) && decision.timeouts <= 1,
                "{decision:?}"
            );
        }
        check(&scheduler, &servers);
        servers.retain(|&server| who < 250 || scheduler.state(server).is_ok());
    }
});
