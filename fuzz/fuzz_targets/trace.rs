//! Trace files come from other machines: whatever their bytes, they are refused, or a report on
//! them succeeds.
#![no_main]

use leasehold_lockscope::{Comparison, Report, Score, Trace, VERSION};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As they are, and as the body behind a header that is right.
    read(bytes);
    let mut whole = b"LOCKSCPE".to_vec();
    whole.extend(VERSION.to_le_bytes());
    whole.extend(crc32fast::hash(bytes).to_le_bytes());
    whole.extend((bytes.len() as u64).to_le_bytes());
    whole.extend(bytes);
    read(&whole);
});

fn read(bytes: &[u8]) {
    let Ok(trace) = Trace::decode(bytes) else {
        return;
    };
    assert_eq!(Trace::decode(&trace.encode()).as_ref(), Ok(&trace));
    let (report, score) = (Report::of(&trace), Score::of(&trace));
    assert!(report.seconds > 0.0);
    assert!((0.0..=9.0).contains(&score.score), "{score:?}");
    assert_eq!(Comparison::of([&trace]).rows.len(), 1);
}
