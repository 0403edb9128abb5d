//! Tests of reading the lease file again: what changes, what does not, and that no request is lost.

mod calibrated;
mod served;

use rustix::process::Signal;
use serde_json::{Value, json};
use served::{LISTENER, Node, raw, table, until};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn node(leases: &str, options: &[&str]) -> Node {
    let directory = tempfile::tempdir().expect("directory");
    Node::start_in(directory, &(LISTENER.to_owned() + leases), options)
}

/// The same program in another file: a custom section makes the difference.
fn another_program(node: &Node, name: &str, mark: u8) {
    let mut bytes = fs::read(node.path("web.wasm")).expect("read");
    bytes.extend([0, 2, 1, mark]);
    fs::write(node.path("next.wasm"), bytes).expect("written");
    fs::rename(node.path("next.wasm"), node.path(name)).expect("renamed");
}

/// The events until now.
fn events(node: &Node) -> Vec<Value> {
    let last = node.json(&["top"])["last_event"]
        .as_u64()
        .expect("a number");
    let mut listener = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["events", "--since", "0", "--json", "--socket"])
        .arg(node.socket())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let out = BufReader::new(listener.stdout.take().expect("piped"));
    let event = |line: std::io::Result<String>| -> Value {
        serde_json::from_str(&line.expect("a line")).expect("an event")
    };
    let events = out.lines().take(last as usize).map(event).collect();
    listener.kill().expect("ended");
    listener.wait().expect("ended");
    events
}

fn kinds_of(events: &[Value], tenant: &str) -> Vec<String> {
    let of = events.iter().filter(|event| event["tenant"] == tenant);
    of.map(|event| event["kind"].as_str().expect("a kind").to_owned())
        .collect()
}

#[test]
fn twenty_reloads_under_load_change_programs_and_routes_and_lose_no_request() {
    let with = |program: &str, route: &str, more: &str| {
        let shop = table("shop", "/*", "").replace("web.wasm", program);
        shop + &table("cart", route, "") + more
    };
    let extra = table(
        "extra",
        "/headers",
        "cpu = { budget = \"1ms\", period = \"20ms\" }",
    );
    let leases = [
        with("web.wasm", "/env", ""),
        with("other.wasm", "/cart", &extra),
    ];
    let node = node(&leases[0], &[]);
    another_program(&node, "other.wasm", b'o');
    let (over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for path in ["/", "/env", "/headers", "/"] {
            let (node, over, answered) = (&node, &over, &answered);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let (status, answer) = node.get(path);
                    assert_eq!(status, 200, "{path}: {answer}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..20 {
            node.leases(&(LISTENER.to_owned() + &leases[(round + 1) % 2]));
            let (code, out, error) = node.command(&["reload"]);
            if code != Some(0) {
                over.store(true, Ordering::Relaxed);
            }
            assert_eq!(code, Some(0), "round {round}: {error}");
            assert!(out.contains("adjusted cart\n"), "{out}");
            assert!(out.contains("replaced shop"), "{out}");
            let extra = if round % 2 == 0 {
                "added extra"
            } else {
                "removed extra"
            };
            assert!(out.contains(extra), "{out}");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(answered.load(Ordering::Relaxed) > 20);
    let metrics = raw(&node.socket(), "GET /metrics HTTP/1.1");
    assert!(
        metrics.contains("leasehold_reloads_total{outcome=\"done\"} 20.0"),
        "{metrics}"
    );
    let (code, text) = node.end();
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_reload_that_is_refused_changes_nothing_and_says_why() {
    let before = table("shop", "/*", "") + &table("cart", "/env", "");
    let node = node(&before, &[]);
    let shown = || {
        let tenants = node.json(&["ps"]);
        let tenants = tenants["tenants"].as_array().expect("tenants").iter();
        let of = |it: &Value| {
            (
                it["name"].clone(),
                it["since"].clone(),
                it["http"]["routes"].clone(),
            )
        };
        tenants.map(of).collect::<Vec<_>>()
    };
    let was = shown();
    let more = "[listener.more]\naddress = \"127.0.0.1:0\"\n";
    let on_main = before.replace("routes =", "listeners = [\"main\"], routes =");
    fs::write(node.path("broken.wasm"), "no program").expect("written");
    let cpu = |name: &str| {
        let cpu = "cpu = { budget = \"9ms\", period = \"10ms\" }";
        table(name, &format!("/{name}"), cpu)
    };
    let rows = [
        (
            before.clone() + "[tenant.new]\ncomponent = 3\n",
            78,
            "tenant.new.component: found the number 3",
        ),
        (before.clone() + &table("new", "/env", ""), 78, "routes"),
        (
            format!("{more}{on_main}"),
            77,
            "listener.more: found a new listener; allowed: those of the start: another one takes a restart",
        ),
        (
            before.clone() + "[cell]\norder = \"earliest-deadline\"\n",
            77,
            "cell.order: found \"earliest-deadline\"",
        ),
        (
            before.clone() + &table("new", "/new", "").replace("web.wasm", "/bin/true"),
            78,
            "tenant.new.component: found \"/bin/true\"; allowed: a program below the directory of the lease file",
        ),
        (
            before.clone() + &table("new", "/new", "").replace("web.wasm", "missing.wasm"),
            66,
            "tenant.new: no such program: ",
        ),
        (
            before.clone() + &table("new", "/new", "").replace("web.wasm", "broken.wasm"),
            65,
            "tenant.new: ",
        ),
        (
            before.clone() + &cpu("one") + &cpu("two"),
            77,
            "the processor reservations cannot all be kept",
        ),
        (
            "[tenant.new]\ncomponent = \"web.wasm\"\nreclaim.budget = \"1ms\"\n".to_owned(),
            78,
            "tenant",
        ),
    ];
    let count = rows.len();
    for (text, expected, said) in rows {
        node.leases(&(LISTENER.to_owned() + &text));
        let (code, _, error) = node.command(&["reload"]);
        assert_eq!(code, Some(expected), "{said}: {error}");
        assert!(
            error.contains("leases.toml") && error.contains(said),
            "{said}: {error}"
        );
        assert_eq!(shown(), was, "{said}");
        assert!(node.get("/env").1.contains("NAME=cart"), "{said}");
    }
    let metrics = raw(&node.socket(), "GET /metrics HTTP/1.1");
    let refused = format!("leasehold_reloads_total{{outcome=\"refused\"}} {count}.0");
    assert!(metrics.contains(&refused), "{metrics}");
    let refused = events(&node)
        .into_iter()
        .filter(|event| event["kind"] == "refused");
    assert_eq!(refused.count(), count);
}

#[test]
fn the_key_of_a_store_that_has_changed_is_named() {
    let stored = |keyvalue: &str| table("shop", "/*", &format!("keyvalue = {{ {keyvalue} }}"));
    let node = node(&stored("file = \"a.redb\", size = \"8MiB\""), &[]);
    let rows = [
        (
            "file = \"a.redb\", size = \"16MiB\"",
            "tenant.shop.keyvalue.size: found \"16MiB\"; allowed: \"8MiB\"",
        ),
        (
            "file = \"b.redb\", size = \"8MiB\"",
            "tenant.shop.keyvalue.file: found ",
        ),
    ];
    for (keyvalue, said) in rows {
        node.leases(&(LISTENER.to_owned() + &stored(keyvalue)));
        let (code, _, error) = node.command(&["reload"]);
        assert_eq!(code, Some(78), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_file_that_has_no_end_or_no_writer_is_refused_and_holds_up_no_operator() {
    let shop = table("shop", "/*", "");
    let node = node(&shop, &[]);
    let fifo = |name: &str| {
        let made = Command::new("mkfifo").arg(node.path(name)).status();
        assert!(made.expect("mkfifo").success());
    };
    fifo("fifo.wasm");
    let vast = fs::File::create(node.path("vast.wasm")).expect("made");
    // Longer than the host's memory, and than what can be read while the test runs.
    vast.set_len(1 << 42).expect("sparse");
    for (name, said) in [
        ("fifo", "found a FIFO; allowed: a regular file"),
        (
            "vast",
            "the program has 4398046511104 bytes; allowed: at most 268435456",
        ),
    ] {
        let new = table("new", "/env", "").replace("web.wasm", &format!("{name}.wasm"));
        node.leases(&(LISTENER.to_owned() + &shop + &new));
        let commands: [&[&str]; 2] = [&["reload"], &["reload", "--dry-run"]];
        let reloads = commands.map(|words| node.command(words).2);
        for error in [node.put("new", &new).2].iter().chain(&reloads) {
            assert!(error.contains(said) && error.contains(name), "{error}");
        }
    }
    fs::remove_file(node.path("web.wasm")).expect("removed");
    fifo("web.wasm");
    let (_, _, error) = node.command(&["replace", "shop"]);
    assert!(error.contains("found a FIFO"), "{error}");
    fs::remove_file(node.path("leases.toml")).expect("removed");
    fifo("leases.toml");
    let (_, _, error) = node.command(&["reload"]);
    let said = "leases.toml: cannot read the lease file: found a FIFO; allowed: a regular file";
    assert!(error.contains(said), "{error}");
    assert!(node.get("/env").1.contains("NAME=shop"));
}

#[test]
fn a_tenant_that_is_removed_finishes_its_requests_and_ends_within_its_bound() {
    let shop = table("shop", "/*", "");
    let node = node(&(shop.clone() + &table("slow", "/sleep", "")), &[]);
    let mut stream = TcpStream::connect(node.address).expect("connected");
    stream
        .write_all(b"GET /sleep?ms=1000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("written");
    let active = || {
        let tenants = node.json(&["ps"]);
        tenants["tenants"][1]["http"]["active"] == 1
    };
    until("the request is under way", active);
    node.leases(&(LISTENER.to_owned() + &shop));
    let changes = node.json(&["reload"]);
    assert_eq!(changes["removed"], json!(["slow"]), "{changes}");
    assert_eq!(changes["kept"], json!(["shop"]), "{changes}");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(
        node.command(&["start", "slow"]).0,
        Some(66),
        "it is not known"
    );
    until("it is forgotten", || {
        kinds_of(&events(&node), "slow") == ["started", "draining", "ended", "deleted"]
    });
    let events = events(&node);
    let end = events
        .iter()
        .find(|event| event["kind"] == "ended")
        .expect("an end");
    assert_eq!(end["end"]["within_bound"], true, "{end}");
    assert_eq!(kinds_of(&events, "shop"), ["started"]);
    assert!(events.iter().any(|event| event["kind"] == "reloaded"));
}

#[test]
fn a_hangup_reloads_also_where_the_process_is_confined() {
    let shop = table("shop", "/*", "");
    let node = node(&shop, &["--confinement", "trap"]);
    another_program(&node, "new.wasm", b'n');
    let new = table("new", "/env", "").replace("web.wasm", "new.wasm");
    node.leases(&(LISTENER.to_owned() + &shop + &new));
    node.signal(Signal::HUP);
    until("the new tenant answers", || {
        node.get("/env").1.contains("NAME=new")
    });
    // The program of the start is another file now, of the same name.
    another_program(&node, "web.wasm", b'w');
    let changes = node.json(&["reload"]);
    assert_eq!(changes["replaced"], json!(["shop"]), "{changes}");
    assert_eq!(changes["kept"], json!(["new"]), "{changes}");
    let (code, text) = node.end();
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("leasehold: reloaded: kept shop; added new"),
        "{text}"
    );
}

#[test]
fn a_dry_run_tells_what_would_change_and_changes_nothing() {
    let node = node(&table("shop", "/*", ""), &[]);
    let shop = table("shop", "/*", "").replace("200ms", "300ms");
    node.leases(&(LISTENER.to_owned() + &shop + &table("more", "/env", "")));
    let (code, out, error) = node.command(&["reload", "--dry-run"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(out, "added more\nreplaced shop\n");
    assert!(node.get("/env").1.contains("NAME=shop"));
    assert_eq!(kinds_of(&events(&node), "shop"), ["started"]);
    node.leases("");
    assert_eq!(node.command(&["reload", "--dry-run"]).0, Some(78));
    let metrics = raw(&node.socket(), "GET /metrics HTTP/1.1");
    assert!(metrics.contains("leasehold_reloads_total{outcome=\"done\"} 0.0"));
}

#[test]
fn a_dry_run_refuses_what_a_reload_refuses() {
    let node = node(&table("shop", "/*", ""), &[]);
    let poor = |name: &str, route: &str| table(name, route, "").replace("200ms", "100us");
    let rows = [
        table("shop", "/*", "") + &poor("more", "/env"),
        table("shop", "/*", "") + &table("more", "/env", "memory = { host = \"1KiB\" }"),
        poor("shop", "/*"),
    ];
    for leases in rows {
        node.leases(&(LISTENER.to_owned() + &leases));
        let (dry, _, said) = node.command(&["reload", "--dry-run"]);
        let (code, _, error) = node.command(&["reload"]);
        assert_eq!((dry, code), (Some(77), Some(77)), "{said} {error}");
        assert_eq!(said, error);
    }
}

#[test]
fn what_an_operator_put_is_not_in_the_file_and_what_was_stopped_stays_stopped() {
    let leases = table("shop", "/*", "") + &table("cart", "/env", "");
    let node = node(&leases, &[]);
    assert_eq!(node.put("mine", &table("mine", "/headers", "")).0, Some(0));
    node.json(&["kill", "cart"]);
    another_program(&node, "web.wasm", b'w');
    let changes = node.json(&["reload"]);
    assert_eq!(changes["removed"], json!(["mine"]), "{changes}");
    assert_eq!(changes["replaced"], json!(["shop", "cart"]), "{changes}");
    assert_eq!(node.get("/env").0, 503);
    node.done(&["start", "cart"]);
    assert_eq!(node.get("/env").0, 200);
}
