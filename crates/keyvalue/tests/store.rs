//! What a store promises: its answers are those of a map, its quota is exact, and its file is sound.

use leasehold_keyvalue::{
    ENTRY_BYTES, FILE_FACTOR, LEAST_FILE, OpenError, Page, Store, StoreError,
};
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.redb");
    (directory, path)
}

fn open(quota: u64) -> (TempDir, Store) {
    let (directory, path) = place();
    let store = Store::open(&path, quota).expect("a store");
    (directory, store)
}

fn set(store: &Store, key: &str, value: &[u8]) -> Result<(), StoreError> {
    store.set(&[(key.to_owned(), value.to_vec())])
}

#[derive(Debug, Clone)]
enum Operation {
    Set(Vec<(String, Vec<u8>)>),
    Delete(Vec<String>),
    Increment(String, u64),
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = "[a-d]{1,2}";
    let value = proptest::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        4 => proptest::collection::vec((key, value), 0..4).prop_map(Operation::Set),
        2 => proptest::collection::vec(key, 0..4).prop_map(Operation::Delete),
        1 => (key, any::<u64>()).prop_map(|(key, delta)| Operation::Increment(key, delta)),
        1 => Just(Operation::Reopen),
    ]
}

fn count(map: &BTreeMap<String, Vec<u8>>) -> u64 {
    let pairs = map.iter();
    pairs
        .map(|(key, value)| ENTRY_BYTES + (key.len() + value.len()) as u64)
        .sum()
}

proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
    #[test]
    fn a_store_answers_as_a_map_with_a_quota(operations in proptest::collection::vec(operation(), 1..30)) {
        const QUOTA: u64 = 2_000;
        let (_directory, path) = place();
        let mut store = Store::open(&path, QUOTA).expect("a store");
        let mut map = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Set(entries) => {
                    let mut next = map.clone();
                    let mut fits = true;
                    for (key, value) in entries.clone() {
                        let before = count(&next);
                        next.insert(key, value);
                        fits &= count(&next) <= QUOTA || count(&next) <= before;
                    }
                    let done = store.set(&entries);
                    prop_assert_eq!(&done, &if fits { Ok(()) } else { Err(StoreError::Quota) });
                    if fits {
                        map = next;
                    }
                }
                Operation::Delete(keys) => {
                    prop_assert_eq!(store.delete(&keys), Ok(()));
                    keys.iter().for_each(|key| drop(map.remove(key)));
                }
                Operation::Increment(key, delta) => {
                    let before = match map.get(&key) {
                        None => Some(0),
                        Some(value) => std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok()),
                    };
                    match (before.and_then(|before| before.checked_add(delta)), store.increment(&key, delta)) {
                        (Some(sum), Ok(found)) => {
                            prop_assert_eq!(sum, found);
                            map.insert(key, sum.to_string().into_bytes());
                        }
                        (Some(_), Err(error)) => prop_assert_eq!(error, StoreError::Quota),
                        (None, found) => prop_assert_eq!(found, Err(StoreError::Number)),
                    }
                }
                Operation::Reopen => {
                    drop(store);
                    store = Store::open(&path, QUOTA).expect("a store");
                }
            }
            prop_assert!(count(&map) <= QUOTA);
            for (key, value) in &map {
                prop_assert_eq!(store.get(key), Ok(Some(value.clone())));
            }
            let mut keys = store.keys(None, usize::MAX, usize::MAX).expect("keys").keys;
            keys.sort();
            prop_assert_eq!(keys, map.keys().cloned().collect::<Vec<_>>());
        }
    }
}

#[test]
fn keys_are_listed_in_parts_and_each_that_stays_is_listed_once() {
    let (_directory, store) = open(1 << 20);
    let names: Vec<String> = (0..100).map(|at| format!("key-{at:03}")).collect();
    for name in &names {
        set(&store, name, b"").expect("set");
    }
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.keys(cursor, 7, 30).expect("a page");
        assert!((1..=7).contains(&page.keys.len()));
        listed.extend(page.keys);
        // Changes in the middle move nothing.
        store.delete(&["key-000".to_owned()]).expect("deleted");
        set(&store, "key-001", b"again").expect("set");
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(listed, names);
    let over = store.keys(Some(u64::MAX), 7, 7).expect("a page");
    assert_eq!((over.keys.len(), over.cursor), (0, None));
    let (_directory, empty) = open(1 << 20);
    let nothing = Page {
        keys: Vec::new(),
        cursor: None,
    };
    assert_eq!(empty.keys(None, 7, 7), Ok(nothing));
}

#[test]
fn keys_values_and_answers_have_their_bounds() {
    let (_directory, store) = open(1 << 20);
    let (long, longer) = ("k".repeat(1024), "k".repeat(1025));
    let (large, larger) = (vec![1; 64 << 10], vec![1; (64 << 10) + 1]);
    assert_eq!(set(&store, &long, &large), Ok(()));
    assert_eq!(set(&store, &longer, b""), Err(StoreError::Key));
    assert_eq!(set(&store, "a", &larger), Err(StoreError::Value));
    assert_eq!(store.get(&longer), Err(StoreError::Key));
    assert_eq!(store.get(&long), Ok(Some(large.clone())));
    let keys = [long.clone(), "missing".to_owned()];
    assert_eq!(store.get_many(&keys, 1000), Err(StoreError::Answer(1000)));
    let all = store.get_many(&keys, 70_000).expect("an answer");
    assert_eq!(all, [Some((long, large)), None]);
}

#[test]
fn values_that_are_set_together_are_read_together() {
    let (_directory, store) = open(1 << 20);
    let keys = ["one".to_owned(), "other".to_owned()];
    let both = |number: u32| {
        let pair = |key: &String| (key.clone(), number.to_le_bytes().to_vec());
        keys.each_ref().map(pair)
    };
    store.set(&both(0)).expect("set");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..=300).try_for_each(|number| store.set(&both(number))));
        while !writer.is_finished() {
            let read = store.get_many(&keys, 1000).expect("an answer");
            let values: Vec<_> = read.into_iter().flatten().map(|(_, value)| value).collect();
            assert_eq!(values[0], values[1]);
        }
        writer.join().expect("no panic").expect("set");
    });
}

#[test]
fn a_store_that_is_full_can_be_emptied_and_its_file_stays_within_its_bound() {
    const QUOTA: u64 = 4 << 20;
    let (directory, store) = open(QUOTA);
    let size = || {
        std::fs::metadata(directory.path().join("a.redb"))
            .expect("a file")
            .len()
    };
    // Values that waste most of the pages that they are on.
    for (round, bytes) in [33_000, 2_100, 50_000].into_iter().enumerate() {
        let mut keys = Vec::new();
        loop {
            let entries: Vec<_> = (0..16)
                .map(|at| (format!("{round}-{}", keys.len() + at), vec![7; bytes]))
                .collect();
            match store.set(&entries) {
                Ok(()) => keys.extend(entries.into_iter().map(|(key, _)| key)),
                Err(error) => {
                    assert_eq!(error, StoreError::Quota);
                    break;
                }
            }
        }
        assert!(keys.len() * bytes > QUOTA as usize / 2, "{}", keys.len());
        assert!(
            size() <= (QUOTA * FILE_FACTOR).max(LEAST_FILE),
            "{}",
            size()
        );
        for part in keys.chunks(200) {
            store.delete(part).expect("there is room to delete");
        }
        assert!(store.keys(None, 1, 1).expect("keys").keys.is_empty());
    }
}

#[test]
fn a_file_that_cannot_be_a_store_is_named() {
    let (_directory, path) = place();
    let _store = Store::open(&path, 1 << 20).expect("a store");
    let taken = Store::open(&path, 1 << 20).expect_err("locked");
    assert!(matches!(taken, OpenError::Taken { .. }), "{taken}");
    let (_other, path) = place();
    std::fs::write(&path, "no store, whatever its name says").expect("written");
    let error = Store::open(&path, 1 << 20).expect_err("refused");
    assert!(error.to_string().contains("found no store"), "{error}");
}

#[test]
fn a_copy_that_a_crash_might_have_left_is_a_sound_store() {
    let (directory, store) = open(1 << 20);
    for round in 0..20_u64 {
        let entries: Vec<_> = (0..8)
            .map(|at| (format!("{at}"), vec![round as u8; 3000]))
            .collect();
        store.set(&entries).expect("set");
        // What is in the file while it is open is what a killed process leaves.
        let copy = directory.path().join(format!("copy-{round}"));
        std::fs::copy(directory.path().join("a.redb"), &copy).expect("copied");
        let copy = Store::open(&copy, 1 << 20).expect("a sound store");
        for (key, value) in &entries {
            assert_eq!(copy.get(key), Ok(Some(value.clone())));
        }
    }
}
