//! Measures the simulator's events per second, and the duration of an invocation of the scheduler
//! on this host, on which its cost model is based.
//!
//! `cargo bench -p leasehold-reserve --bench simulate`

use std::time::Instant;

use leasehold_reserve::simulate::{Behaviour, CostModel, Event, Simulation, Sink, Tally};
use leasehold_reserve::{Config, Contract, Nanos, Order, Priority, Shielding};

const MS: Nanos = 1_000_000;
/// Virtual time that is simulated.
const SPAN: Nanos = 20_000 * MS;
const SERVERS: [u32; 4] = [1, 10, 100, 1_000];
const SCHEDULERS: &[(Shielding, &str)] = &[
    (Shielding::Shielded, "shielded"),
    (Shielding::Eager, "eager"),
];

/// Counts what happens at an instant of its own.
#[derive(Default)]
struct Count {
    events: u64,
    decisions: u64,
}

impl Sink for Count {
    fn record(&mut self, event: &Event) {
        self.events += 1;
        self.decisions += u64::from(matches!(event, Event::Decided { .. }));
    }
}

/// Servers that together have 90 % of the processor, with tasks that suspend themselves, wait for
/// random events, or compute.
fn simulation<S: Sink>(shielding: Shielding, servers: u32, sink: S) -> Simulation<S> {
    let config = Config {
        order: Order::FixedPriority,
        shielding,
        servers,
        tasks: servers,
        seed: 0,
    };
    let mut simulation = Simulation::new(config, CostModel::FREE, sink);
    for n in 0..u64::from(servers) {
        let period = (1 + n % 7) * MS * u64::from(servers).div_ceil(10);
        let contract = Contract::new(period * 9 / 10 / u64::from(servers), period)
            .expect("less than a period")
            .with_priority(Priority((n * 37 % 256) as u8));
        let server = simulation.server(&contract).expect("there is room");
        let behaviour = match n % 3 {
            0 => Behaviour::Alternating {
                run: contract.budget() / 10,
                sleep: period / 20,
            },
            1 => Behaviour::Busy,
            _ => Behaviour::Sporadic {
                seed: n,
                least_gap: period / 20,
                greatest_gap: period / 5,
                least_execution: 1_000,
                greatest_execution: contract.budget() / 4 + 1_000,
            },
        };
        simulation.task(server, behaviour).expect("takes time");
    }
    simulation
}

fn main() {
    println!(
        "servers  scheduler  decisions     events  decisions/s     events/s  tallied events/s"
    );
    for servers in SERVERS {
        for &(shielding, name) in SCHEDULERS {
            let mut counted = simulation(shielding, servers, Count::default());
            let start = Instant::now();
            counted.run_until(SPAN).expect("time passes");
            let seconds = start.elapsed().as_secs_f64();
            let count = counted.into_sink();

            let mut tallied = simulation(shielding, servers, Tally::new());
            let start = Instant::now();
            tallied.run_until(SPAN).expect("time passes");
            let tally_seconds = start.elapsed().as_secs_f64();
            println!(
                "{servers:>7}  {name:<9} {:>10} {:>10} {:>12.2e} {:>12.2e} {:>17.2e}",
                count.decisions,
                count.events,
                count.decisions as f64 / seconds,
                count.events as f64 / seconds,
                count.events as f64 / tally_seconds
            );
        }
    }
}
