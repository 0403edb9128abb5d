//! Trace files: what is written is read, whatever is read does no harm.

use std::fs;
use std::path::Path;

use leasehold_lockscope::{
    Access, Class, Malformed, Mode, Object, Place, PlaceId, Primitive, PrimitiveId, Stack, StackId,
    Trace, TraceError, Use, Workload, WorkloadId,
};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

fn trace(uses: Vec<Use>) -> Trace {
    let workload = |name: &str| Workload {
        name: name.into(),
        what: "true".into(),
        ran_ns: 1,
        own_ns: 0,
    };
    Trace {
        name: "pipes".into(),
        mode: Mode::Full,
        platform: "host".into(),
        classes: vec![Class::Mutex],
        duration_ns: 1_000_000_000,
        workloads: vec![workload("a"), workload("b")],
        primitives: vec![Primitive {
            name: "mutex_lock".into(),
            class: Class::Mutex,
            access: Access::Exclusive,
            tries: false,
        }],
        stacks: vec![Stack(vec![0xffff_ffff_8100_1010, 1])],
        places: vec![Place {
            function: "pipe_write".into(),
            file: "fs/pipe.c".into(),
            line: 1,
            object: Object::Member {
                structure: "pipe_inode_info".into(),
                field: "mutex".into(),
                offset: Some(0),
            },
        }],
        uses,
        ..Trace::default()
    }
}

/// Uses that refer to what the trace above has.
fn uses() -> impl Strategy<Value = Vec<Use>> {
    let one = (
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        0u8..2,
        any::<bool>(),
    );
    let one = one.prop_map(|(lock, acquired, generation, workload, known)| Use {
        lock,
        acquired,
        generation,
        workload: WorkloadId(workload),
        stack: known.then_some(StackId(0)),
        place: known.then_some(PlaceId(0)),
        ..Use::default()
    });
    proptest::collection::vec(one, 0..20)
}

proptest! {
    #[test]
    fn what_is_written_is_read(uses in uses()) {
        let trace = trace(uses);
        prop_assert_eq!(Trace::decode(&trace.encode()), Ok(trace));
    }

    #[test]
    fn a_damaged_byte_is_noticed(uses in uses(), at in any::<proptest::sample::Index>(), bit in 0u8..8) {
        let mut bytes = trace(uses).encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Trace::decode(&bytes).is_err());
    }

    #[test]
    fn a_file_that_ends_early_is_refused(uses in uses(), at in any::<proptest::sample::Index>()) {
        let bytes = trace(uses).encode();
        prop_assert!(Trace::decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_body_behind_a_right_header_is_decoded_or_refused(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(trace) = Trace::decode(&with_header(&body)) {
            // Postcard has one encoding for a value, but reads numbers with leading zeros too.
            prop_assert_eq!(Trace::decode(&trace.encode()), Ok(trace));
        }
    }
}

fn with_header(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"LOCKSCPE".to_vec();
    bytes.extend(leasehold_lockscope::VERSION.to_le_bytes());
    bytes.extend(crc32fast::hash(body).to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn a_number_that_refers_to_nothing_is_refused() {
    let dangling = |used: Use| Trace::decode(&trace(vec![used]).encode());
    let workload = dangling(Use {
        workload: WorkloadId(2),
        ..Use::default()
    });
    let (index, at, count) = (2, 0, 2);
    let what = "workload";
    assert_eq!(
        workload,
        Err(Malformed::Dangling {
            what,
            index,
            at,
            count
        })
    );
    for used in [
        Use {
            primitive: PrimitiveId(1),
            ..Use::default()
        },
        Use {
            stack: Some(StackId(1)),
            ..Use::default()
        },
        Use {
            place: Some(PlaceId(9)),
            ..Use::default()
        },
    ] {
        assert!(matches!(dangling(used), Err(Malformed::Dangling { .. })));
    }
}

#[test]
fn another_version_and_other_files_are_told_apart() {
    let mut bytes = trace(vec![]).encode();
    bytes[8] = 9;
    assert_eq!(Trace::decode(&bytes), Err(Malformed::Version { found: 9 }));
    assert_eq!(
        Trace::decode(b"#!/bin/sh\necho this is no trace\n"),
        Err(Malformed::NotATrace)
    );
    assert_eq!(Trace::decode(b""), Err(Malformed::NotATrace));
}

#[test]
fn a_trace_that_cannot_be_written_leaves_the_old_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("old.trace");
    trace(vec![]).write(&file).expect("written");
    let before = fs::read(&file).expect("readable");
    // A directory of this name cannot be replaced by a file.
    let taken = directory.path().join("taken.trace");
    fs::create_dir(&taken).expect("a directory");
    let error = trace(vec![]).write(&taken).expect_err("refused");
    assert!(matches!(error, TraceError::Io { doing: "write", .. }));
    assert!(error.to_string().contains("taken.trace"), "{error}");
    let missing = trace(vec![]).write(Path::new("/nonexistent/x.trace"));
    assert!(missing.is_err());
    assert_eq!(fs::read(&file).expect("readable"), before);
    let left = fs::read_dir(directory.path()).expect("readable").count();
    assert_eq!(left, 2, "nothing half-written is left behind");
}

#[test]
fn a_trace_is_as_readable_as_other_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let [other, file] = ["other", "trace"].map(|name| directory.path().join(name));
    fs::write(&other, "").expect("written");
    trace(vec![]).write(&file).expect("written");
    let mode = |file: &Path| fs::metadata(file).expect("there").permissions();
    assert_eq!(mode(&file), mode(&other));
}
