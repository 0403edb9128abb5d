//! What `wasi:config`, `wasi:logging` and `wasi:keyvalue` answer, and what can be asked of them.
//!
//! The first argument says what: `transcript` calls every function as a program would, `extremes`
//! as none would, and the others do what their names say.

mod plain {
    wit_bindgen::generate!({
        path: "../../crates/cell/wit/interfaces",
        world: "leasehold:interfaces/plain",
        generate_all,
    });
}

mod unversioned {
    wit_bindgen::generate!({
        path: "../../crates/cell/wit/logging",
        world: "leasehold:logging/unversioned",
        generate_all,
    });
}

mod blocking {
    wit_bindgen::generate!({
        path: "../../crates/cell/wit/interfaces",
        world: "leasehold:interfaces/blocking",
        generate_all,
    });
}

use blocking::wasi::keyvalue::{atomics, batch, store};
use plain::wasi::config::store as config;
use plain::wasi::logging::logging::{self, Level};
use store::Bucket;

fn open() -> Bucket {
    store::open("").expect("a store")
}

/// All keys, whatever the size of a page.
fn keys(bucket: &Bucket) -> Vec<String> {
    let (mut keys, mut cursor) = (Vec::new(), None);
    loop {
        let page = bucket.list_keys(cursor).expect("keys");
        keys.extend(page.keys);
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    keys.sort();
    keys
}

/// Every function, as its text has it.
fn transcript() {
    for key in ["shop", "empty", "nothing", ""] {
        println!("config {key:?}: {:?}", config::get(key));
    }
    let mut all = config::get_all().expect("all");
    all.sort();
    println!("config: {all:?}");
    for name in ["nothing", "a/b", "\0"] {
        let error = store::open(name).err();
        println!("open {name:?}: {error:?}");
    }
    let bucket = open();
    println!("keys: {:?}", keys(&bucket));
    println!("get: {:?}", bucket.get("a"));
    println!("exists: {:?}", bucket.exists("a"));
    println!("set: {:?}", bucket.set("a", b"one"));
    println!("set empty: {:?}", bucket.set("", b""));
    println!("set bytes: {:?}", bucket.set("ä/\0\n", &[0, 255, 10]));
    println!("get: {:?} {:?}", bucket.get("a"), bucket.get(""));
    println!("get bytes: {:?}", bucket.get("ä/\0\n"));
    println!("exists: {:?} {:?}", bucket.exists("a"), bucket.exists("b"));
    println!("set again: {:?}", bucket.set("a", b"two"));
    println!("get again: {:?}", bucket.get("a"));
    println!("keys: {:?}", keys(&bucket));
    let far = bucket.list_keys(Some(u64::MAX)).expect("keys");
    println!("keys from far: {:?} {:?}", far.keys, far.cursor);
    println!("delete: {:?}", bucket.delete("a"));
    println!("delete again: {:?}", bucket.delete("a"));
    println!("get deleted: {:?}", bucket.get("a"));
    println!("increment: {:?}", atomics::increment(&bucket, "n", 7));
    println!("increment: {:?}", atomics::increment(&bucket, "n", 0));
    println!("increment: {:?}", atomics::increment(&bucket, "n", u64::MAX - 7));
    let over = atomics::increment(&bucket, "n", 1);
    println!("increment beyond: {:?}", over.is_err());
    println!("number: {:?}", bucket.get("n"));
    bucket.set("text", b"no number").expect("set");
    let text = atomics::increment(&bucket, "text", 1);
    println!("increment text: {:?} {:?}", text.is_err(), bucket.get("text"));
    let strings = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let many = [("x".to_owned(), vec![1; 3]), ("y".to_owned(), Vec::new()), ("x".to_owned(), vec![2])];
    println!("set many: {:?}", batch::set_many(&bucket, &many));
    println!("set none: {:?}", batch::set_many(&bucket, &[]));
    let got = batch::get_many(&bucket, &strings(&["y", "missing", "x", "x"]));
    println!("get many: {got:?}");
    println!("get none: {:?}", batch::get_many(&bucket, &[]));
    let deleted = batch::delete_many(&bucket, &strings(&["x", "missing", "y", "x"]));
    println!("delete many: {deleted:?}");
    println!("keys: {:?}", keys(&bucket));
    let other = open();
    drop(bucket);
    drop(other);
    println!("over");
}

/// Arguments that are beyond what is allowed, or next to it.
fn extremes() {
    let bucket = store::open("default").expect("the other name");
    let (long, longer) = ("k".repeat(1024), "k".repeat(1025));
    let (large, larger) = (vec![7; 64 << 10], vec![7; (64 << 10) + 1]);
    println!("set: {:?}", bucket.set(&long, &large));
    println!("long key: {:?}", bucket.set(&longer, b""));
    println!("large value: {:?}", bucket.set("a", &larger));
    println!("get long: {:?}", bucket.get(&longer));
    println!("exists long: {:?}", bucket.exists(&longer));
    println!("delete long: {:?}", bucket.delete(&longer));
    println!("increment long: {:?}", atomics::increment(&bucket, &longer, 1));
    let got = bucket.get(&long).map(|value| value.map(|value| value.len()));
    println!("get: {got:?}");
    println!("twice: {:?}", batch::get_many(&bucket, &[long.clone(), long]).err());
    let many: Vec<String> = (0..1025).map(|at| at.to_string()).collect();
    println!("many: {:?}", batch::get_many(&bucket, &many).err());
    println!("many: {:?}", batch::delete_many(&bucket, &many).err());
    let pairs: Vec<_> = many.iter().map(|key| (key.clone(), Vec::new())).collect();
    println!("many: {:?}", batch::set_many(&bucket, &pairs).err());
    println!("so many: {:?}", batch::set_many(&bucket, &pairs[..1024]));
    let page = bucket.list_keys(None).expect("a page");
    println!("page: {} {}", page.keys.len(), page.cursor.is_some());
    println!("all: {}", keys(&bucket).len());
    println!("cursor: {:?}", bucket.list_keys(Some(u64::MAX)).expect("a page").keys);
}

/// Sets keys until one is refused, and then makes room again.
fn fill() {
    let bucket = open();
    let mut count = 0;
    let error = loop {
        match bucket.set(&format!("key-{count}"), &vec![1; 60_000]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    println!("{count} keys: {error:?}");
    println!("increment: {:?}", atomics::increment(&bucket, "n", 1).is_err());
    println!("smaller: {:?}", bucket.set("key-0", b""));
    println!("delete: {:?}", bucket.delete("key-1"));
    println!("set: {:?}", bucket.set("again", &[1; 60_000]));
}

/// What was read is not what was written.
fn wrong() -> ! {
    core::arch::wasm32::unreachable()
}

/// Reads and writes files and a store, all of which may fail; whether none of it did.
fn attempts() -> bool {
    let mut failed = 0;
    let mut is_done = |done: bool| {
        failed += u32::from(!done);
        done
    };
    let text = vec![7_u8; 5_000];
    if is_done(std::fs::write("file", &text).is_ok())
        && let Ok(read) = std::fs::read("file")
        && read != text
    {
        wrong();
    }
    is_done(std::fs::metadata("file").is_ok());
    is_done(std::fs::read_dir(".").is_ok_and(|mut entries| entries.all(|entry| entry.is_ok())));
    if is_done(std::fs::create_dir("directory").is_ok()) {
        is_done(std::fs::rename("file", "directory/file").is_ok());
        is_done(std::fs::remove_file("directory/file").is_ok());
        is_done(std::fs::remove_dir("directory").is_ok());
    }
    let Ok(bucket) = store::open("") else {
        return false;
    };
    let is = |key: &str, value: &[u8]| {
        let got = bucket.get(key);
        if let Ok(got) = &got
            && got.as_deref() != Some(value)
        {
            wrong();
        }
        got.is_ok()
    };
    for value in [[1_u8; 3_000], [2; 3_000]] {
        if is_done(bucket.set("a", &value).is_ok()) {
            is_done(is("a", &value));
        }
    }
    let pairs = [("b".to_owned(), vec![3; 100]), ("c".to_owned(), vec![4; 100])];
    if is_done(batch::set_many(&bucket, &pairs).is_ok()) {
        is_done(is("b", &[3; 100]) && is("c", &[4; 100]));
        is_done(bucket.list_keys(None).is_ok());
    }
    is_done(atomics::increment(&bucket, "n", 1).is_ok());
    is_done(bucket.delete("a").is_ok());
    failed == 0
}

fn main() {
    match std::env::args().nth(1).unwrap_or_default().as_str() {
        "transcript" => transcript(),
        "extremes" => extremes(),
        "fill" => fill(),
        "log" => {
            logging::log(Level::Trace, "a", "one");
            logging::log(Level::Critical, "", "two\nlines");
            unversioned::wasi::logging::logging::log(
                unversioned::wasi::logging::logging::Level::Warn,
                "old",
                "three",
            );
            logging::log(Level::Info, "long", &"x".repeat(100_000));
        }
        "flood" => {
            for at in 0..5_000 {
                logging::log(Level::Info, "flood", &at.to_string());
            }
        }
        "attempts" => std::process::exit(i32::from(!attempts())),
        "denied" => println!("{:?}", store::open("").err()),
        // Buckets until the lease pays for no more, kept.
        "buckets" => {
            let mut buckets = Vec::new();
            let error = loop {
                match store::open("") {
                    Ok(bucket) => buckets.push(bucket),
                    Err(error) => break error,
                }
            };
            println!("{} buckets: {error:?}", buckets.len());
        }
        // Two keys that are always equal, until it is killed.
        "write" => {
            let bucket = open();
            println!("ready");
            for round in 0_u64.. {
                let value = vec![round as u8; 5_000];
                let pairs = [("a".to_owned(), value.clone()), ("b".to_owned(), value)];
                batch::set_many(&bucket, &pairs).expect("set");
            }
        }
        other => panic!("unknown: {other:?}"),
    }
}
