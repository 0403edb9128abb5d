//! Wakes at every multiple of PERIOD and prints how late: `late COUNT P50 P99 MAX` in ns, a line
//! per ROUND wake-ups (SPR fig. 12). `latency-probe PERIOD_NS ROUND`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, nap_until, next_multiple, now, program};
use leasehold_probes::Quantiles;

program!(main);

fn main(arguments: &Arguments<'_>) {
    let period = arguments.number(0, 10_000_000).max(1);
    let round = arguments.number(1, 100);
    let mut late = Quantiles::<1024>::new();
    Line::print(format_args!("ready"));
    loop {
        let planned = next_multiple(period, 0);
        nap_until(planned);
        late.add("late", now().saturating_sub(planned), round);
    }
}
