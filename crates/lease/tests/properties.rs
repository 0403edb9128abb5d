//! Properties of every text.

use std::path::Path;

use leasehold_lease::{ByteSize, Cpu, LeaseFile, Nanoseconds, Policy, QuantityFault};
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

/// The units of a kind with their factors, as the documentation states them.
const TIME_UNITS: [(&str, u128); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];
const SIZE_UNITS: [(&str, u128); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// What `whole.fraction` of a unit is worth, computed as one ratio of wide integers: the
/// reference for a parser that works digit by digit. Fractions are at most 12 digits here.
fn expected(whole: u64, fraction: &str, factor: u128, max: u64) -> Result<u64, QuantityFault> {
    // A whole part beyond 64 bits is too large whatever its fraction is.
    if u128::from(whole) * factor > u128::from(u64::MAX) {
        return Err(QuantityFault::TooLarge);
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let digits: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().expect("digits")
    };
    let value = (u128::from(whole) * scale + digits) * factor;
    match value / scale {
        _ if !value.is_multiple_of(scale) => Err(QuantityFault::NotWhole),
        0 => Err(QuantityFault::Zero),
        n if n > u128::from(max) => Err(QuantityFault::TooLarge),
        n => Ok(n as u64),
    }
}

/// Lines that make up lease files, and noise: any order and number of them.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\[tenant\\.[a-c]\\]",
        Just("component = \"a.wasm\"".to_owned()),
        "memory\\.(limit|kind|shared|swap) = \"(firm|hard|spc|none|x|[0-9]{1,4}[KM]iB)\"",
        "(reclaim|memory)\\.(budget|reserve|call_bytes|table_elements) = \"?[0-9]{1,25}(us|MiB)?\"?",
        "cpu\\.(budget|period|nonpreemptive|slice) = \"[0-9]{1,4}(us|ms)\"",
        "cpu\\.(priority|replenishments) = -?[0-9]{1,3}",
        "cpu\\.policy = \"(sporadic|deferrable|x)\"",
        "disk\\.(bytes|files) = \"?[0-9]{1,12}(MiB)?\"?",
        "(args|env|dirs|data|reclaim|memory|cpu|disk) = [\\[{][^\\n]{0,20}[}\\]]",
        "[^\\n]{0,30}",
    ]
}

/// Any reservation that a lease can state.
fn reservation() -> impl Strategy<Value = Cpu> {
    let time =
        |least: u64, most: u64| (least..=most).prop_map(|n| Nanoseconds::new(n).expect("in range"));
    let period = time(Cpu::MIN_PERIOD.get(), Nanoseconds::MAX.get());
    period
        .prop_flat_map(move |period| (Just(period), time(Cpu::MIN_BUDGET.get(), period.get())))
        .prop_flat_map(move |(period, budget)| {
            (
                (Just(period), Just(budget), any::<u8>()),
                proptest::option::of(time(1, budget.get())),
                prop_oneof![Just(Policy::Sporadic), Just(Policy::Deferrable)],
                Cpu::MIN_REPLENISHMENTS..=Cpu::MAX_REPLENISHMENTS,
                time(Cpu::MIN_BUDGET.get(), Nanoseconds::MAX.get()),
            )
        })
        .prop_map(
            |((period, budget, priority), nonpreemptive, policy, replenishments, slice)| {
                let cpu = Cpu::new(budget, period).expect("consistent");
                let cpu = cpu.with_priority(priority).with_policy(policy);
                let cpu = nonpreemptive.map_or(Ok(cpu), |length| cpu.with_nonpreemptive(length));
                cpu.and_then(|cpu| cpu.with_replenishments(replenishments))
                    .and_then(|cpu| cpu.with_slice(slice))
                    .expect("consistent")
            },
        )
}

proptest! {
    #[test]
    fn a_reservation_reads_back_as_it_displays(cpu in reservation()) {
        prop_assert_eq!(cpu.to_string().parse(), Ok(cpu));
    }

    #[test]
    fn any_text_is_a_reservation_or_one_line_of_error(
        text in prop_oneof![
            ".{0,80}",
            "(budget=[0-9]{1,3}(us|ms),|period=[0-9]{1,3}(us|ms),|slice=[0-9]us,|priority=[0-9]{1,4},){0,5}",
        ],
    ) {
        match text.parse::<Cpu>() {
            Ok(cpu) => prop_assert!(cpu.budget() <= cpu.period()),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }

    #[test]
    fn a_time_reads_back_as_it_displays(value in 1..=Nanoseconds::MAX.get()) {
        let time = Nanoseconds::new(value).expect("in range");
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn a_size_reads_back_as_it_displays(value in 1..=ByteSize::MAX.get(), shift in 0..41_u32) {
        // Shifting makes multiples of the units as likely as odd numbers.
        let size = ByteSize::new((value >> shift << shift).max(1)).expect("in range");
        prop_assert_eq!(size.to_string().parse(), Ok(size));
    }

    #[test]
    fn a_time_is_exactly_what_it_says(
        whole in prop_oneof![0..5_000_u64, any::<u64>()],
        fraction in "[0-9]{0,12}",
        unit in 0..TIME_UNITS.len(),
    ) {
        let (symbol, factor) = TIME_UNITS[unit];
        let dot = if fraction.is_empty() { "" } else { "." };
        let parsed = format!("{whole}{dot}{fraction}{symbol}").parse::<Nanoseconds>();
        prop_assert_eq!(
            parsed.map(Nanoseconds::get).map_err(|error| error.fault()),
            expected(whole, &fraction, factor, Nanoseconds::MAX.get())
        );
    }

    #[test]
    fn a_size_is_exactly_what_it_says(
        whole in prop_oneof![0..5_000_u64, any::<u64>()],
        // Multiples of 1/1024 too, which are the fractions that come out whole.
        fraction in prop_oneof!["[0-9]{0,12}", (0..1024_u64).prop_map(|n| format!("{:010}", n * 9_765_625))],
        unit in 0..SIZE_UNITS.len(),
    ) {
        let (symbol, factor) = SIZE_UNITS[unit];
        let dot = if fraction.is_empty() { "" } else { "." };
        let parsed = format!("{whole}{dot}{fraction}{symbol}").parse::<ByteSize>();
        prop_assert_eq!(
            parsed.map(ByteSize::get).map_err(|error| error.fault()),
            expected(whole, &fraction, factor, ByteSize::MAX.get())
        );
    }

    #[test]
    fn any_text_is_a_quantity_or_one_line_of_error(text in ".{0,80}") {
        if let Err(error) = text.parse::<Nanoseconds>() {
            prop_assert!(!error.to_string().contains('\n'));
        }
        if let Err(error) = text.parse::<ByteSize>() {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_text_is_leases_or_one_line_of_error(
        text in prop_oneof![
            "(?s).{0,200}",
            proptest::collection::vec(line(), 0..8).prop_map(|lines| lines.join("\n")),
        ],
    ) {
        match LeaseFile::parse(&text, Path::new("lease.toml")) {
            Ok(file) => prop_assert!(!file.tenants.is_empty()),
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.starts_with("lease.toml:"), "{}", message);
                prop_assert!(!message.contains('\n'), "{}", message);
            }
        }
    }
}
