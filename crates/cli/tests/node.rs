//! Tests of a node's control socket and its clients: a real server on loopback, operated by the program itself.

mod calibrated;
mod served;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use served::{LISTENER, Node, SOON, raw, serve, table, until};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_tenant_is_put_with_a_program_that_came_beside_the_lease_file_later() {
    let node = Node::start(&[]);
    fs::copy(node.path("web.wasm"), node.path("late.wasm")).expect("copied");
    let late = table("late", "/late", "").replace("web.wasm", "late.wasm");
    let (code, out, error) = node.put("late", &late);
    assert_eq!((code, out.as_str()), (Some(0), "late: new\n"), "{error}");
}

#[test]
fn a_tenant_is_put_replaced_killed_started_and_deleted_and_each_is_idempotent() {
    let node = Node::start(&[]);
    let more = table("more", "/env", "");
    assert_eq!(node.put("more", &more).1, "more: new\n");
    assert!(node.get("/env").1.contains("NAME=more"));
    assert_eq!(node.put("more", &more).1, "more: put\n", "it is unchanged");
    let twice = node.put("other", &table("other", "/env", ""));
    assert_eq!(twice.0, Some(77), "{}", twice.2);
    assert!(twice.2.contains("tenant.more has this one"), "{}", twice.2);
    let wrong = node.put("bad", "[tenant.bad]\ncomponent = 3\n");
    assert_eq!(wrong.0, Some(78), "{}", wrong.2);
    assert!(
        wrong
            .2
            .contains(":2:13: tenant.bad.component: found the number 3"),
        "{}",
        wrong.2
    );
    let beyond = node.command(&["kill", "../more"]);
    assert_eq!(beyond.0, Some(2), "{}", beyond.2);
    assert!(
        beyond.2.contains("found \"../more\"; allowed: 1 to 63 of"),
        "{}",
        beyond.2
    );
    let outside = node.put(
        "out",
        "[tenant.out]\ncomponent = \"/bin/true\"\nreclaim.budget = \"1ms\"\n",
    );
    assert!(
        outside.2.contains("below the directory of the lease file"),
        "{}",
        outside.2
    );
    let missing = table("out", "/out", "").replace("web.wasm", "missing.wasm");
    let missing = node.put("out", &missing);
    assert_eq!(missing.0, Some(66), "{}", missing.2);
    assert!(
        missing.2.contains("tenant.out: no such program: "),
        "{}",
        missing.2
    );
    node.done(&["replace", "more"]);
    let end = node.json(&["kill", "more"]);
    assert_eq!(end["exit"]["kind"], "killed");
    assert!(
        end["wall_ns"].as_u64() > Some(0) && end["effect_ns"].is_u64(),
        "{end}"
    );
    assert_eq!(node.json(&["kill", "more"]), end, "the same end");
    assert_eq!(node.get("/env").0, 503);
    // What the cell said now is shown for a second.
    node.json(&["ps"]);
    node.done(&["start", "more"]);
    let shown = raw(&node.socket(), "GET /v1/tenants/more HTTP/1.1");
    let states = ["ready", "running", "blocked"].map(|state| format!("\"state\":\"{state}\""));
    assert!(
        states.iter().any(|state| shown.contains(state)),
        "what was started is not starting: {shown}"
    );
    assert_eq!(node.get("/env").0, 200);
    for said in ["more: deleted\n", "more: there is none\n"] {
        assert_eq!(node.command(&["delete", "more"]).1, said);
    }
    until("the route is the shop's again", || {
        node.get("/env").1.contains("NAME=shop")
    });
    assert_eq!(node.command(&["kill", "none"]).0, Some(66));
    let (code, text) = node.end();
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn operators_are_answered_while_a_start_takes_long() {
    let node = Node::start(&["--unadmitted"]);
    // It takes some 50 us: many periods of this.
    let slow = table(
        "slow",
        "/slow",
        "cpu = { budget = \"10us\", period = \"5s\" }",
    );
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_ne!(node.put("slow", &slow).0, Some(0), "it was not started");
            is_over.store(true, Ordering::Relaxed);
        });
        std::thread::sleep(SOON / 20);
        for words in [&["kill", "shop"][..], &["start", "shop"], &["ps"]] {
            node.done(words);
        }
        assert_eq!(node.get("/env").0, 200);
        assert!(
            !is_over.load(Ordering::Relaxed),
            "the start took too little"
        );
        node.signal(Signal::TERM);
    });
}

#[test]
fn an_order_to_start_that_is_refused_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("place");
    fs::create_dir(&place).expect("made");
    let job = "[tenant.job]\ncomponent = \"job.wat\"\nreclaim = { budget = \"200ms\" }\n\
               dirs = [{ host = \"place\", guest = \"/\" }]\n";
    fs::write(
        directory.path().join("job.wat"),
        "(module (func (export \"_start\") (loop (br 0))))",
    )
    .expect("written");
    let leases = LISTENER.to_owned() + &table("shop", "/*", "") + job;
    let node = Node::start_in(directory, &leases, &["--unadmitted"]);
    let desired = || {
        let tenants = node.json(&["ps"]);
        let tenants = tenants["tenants"].as_array().expect("a list").clone();
        let job = tenants.into_iter().find(|tenant| tenant["name"] == "job");
        job.expect("it is known")["desired"].clone()
    };
    node.done(&["kill", "job"]);
    assert_eq!(desired(), "stopped");
    fs::rename(&place, node.path("elsewhere")).expect("renamed");
    let refused = node.command(&["start", "job"]);
    assert_ne!(refused.0, Some(0), "{refused:?}");
    assert_eq!(desired(), "stopped", "{refused:?}");
    fs::rename(node.path("elsewhere"), &place).expect("renamed");
    node.done(&["start", "job"]);
    assert_eq!(desired(), "running");
}

#[test]
fn a_tenant_that_is_killed_and_started_while_it_is_started_is_one_that_is_to_run() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(
        directory.path().join("hog.wat"),
        "(module (func (export \"_start\") (loop (br 0))))",
    )
    .expect("written");
    // What others start or end waits until it has used its budget.
    let hog = "[tenant.hog]\ncomponent = \"hog.wat\"\nreclaim = { budget = \"200ms\" }\n\
               cpu = { budget = \"3800ms\", period = \"4s\", priority = 100 }\n";
    let leases = LISTENER.to_owned() + &table("late", "/*", "") + hog;
    let node = Node::start_in(directory, &leases, &["--unadmitted"]);
    node.done(&["kill", "late"]);
    // Its next budget.
    std::thread::sleep(SOON / 20);
    std::thread::scope(|scope| {
        scope.spawn(|| node.command(&["start", "late"]));
        let late = || {
            let tenants = node.json(&["ps"])["tenants"].clone();
            let all = tenants.as_array().expect("a list");
            let late = all.iter().find(|tenant| tenant["name"] == "late");
            late.expect("it is known").clone()
        };
        until("it is being started", || late()["state"] == "starting");
        for order in ["kill", "start"] {
            node.done(&[order, "late"]);
        }
        until("it is there", || late()["state"] != "starting");
        assert_eq!(late()["desired"], "running", "{}", late());
    });
}

#[test]
fn the_last_of_several_orders_to_drain_is_not_outlasted_by_an_earlier_one() {
    let node = Node::start(&[]);
    std::thread::scope(|scope| {
        for orders in [
            ["drain shop --grace 300s", "drain shop --grace 50ms"],
            ["replace shop", "drain shop --grace 50ms"],
        ] {
            node.done(&["start", "shop"]);
            let (ended, request) = std::sync::mpsc::channel();
            let node = &node;
            scope.spawn(move || {
                node.get("/sleep?ms=18000");
                let _ = ended.send(());
            });
            let active = || node.json(&["ps"])["tenants"][0]["http"]["active"] == 1;
            until("the request is under way", active);
            for order in orders {
                let words: Vec<&str> = order.split(' ').collect();
                node.done(&words);
            }
            // A replaced life has 10 seconds by itself.
            assert!(request.recv_timeout(SOON / 4).is_ok(), "{orders:?}");
        }
    });
}

#[test]
fn a_request_waits_for_a_tenant_that_is_started_before_its_earlier_life_is_over() {
    let node = Node::start(&[]);
    std::thread::scope(|scope| {
        scope.spawn(|| node.get("/sleep?ms=18000"));
        let active = || node.json(&["ps"])["tenants"][0]["http"]["active"] == 1;
        until("the request is under way", active);
        let drain = node.command(&["drain", "shop", "--grace", "2s"]);
        assert_eq!(drain.0, Some(0));
        node.done(&["start", "shop"]);
        assert_eq!(node.get("/env").0, 200);
    });
}

#[test]
fn an_order_to_start_waits_for_what_a_replaced_life_still_has() {
    let directory = tempfile::tempdir().expect("a directory");
    let memory = |mebibytes: u32| format!("memory = {{ reserve = \"{mebibytes}MiB\" }}");
    let leases = "[cell]\nmemory = \"96MiB\"\n".to_owned()
        + LISTENER
        + &table("shop", "/*", &memory(32))
        + &table("other", "/env", &memory(64));
    let node = Node::start_in(directory, &leases, &["--unadmitted"]);
    node.done(&["kill", "other"]);
    std::thread::scope(|scope| {
        scope.spawn(|| node.get("/sleep?ms=2000"));
        let active = || node.json(&["ps"])["tenants"][0]["http"]["active"] == 1;
        until("the request is under way", active);
        node.done(&["replace", "shop"]);
        // Both lives of the other tenant have 64 of the 96 MiB now.
        node.done(&["start", "other"]);
        assert_eq!(node.get("/env").0, 200);
    });
}

#[test]
fn no_program_makes_the_message_of_its_refusal_long() {
    let node = Node::start(&[]);
    let line = format!("(module {}", "(".repeat(4 << 20));
    fs::write(node.path("deep.wat"), line).expect("written");
    let deep = table("deep", "/deep", "").replace("web.wasm", "deep.wat");
    let (code, _, message) = node.put("deep", &deep);
    assert_eq!(code, Some(65), "{} bytes", message.len());
    assert!(message.len() < 2000, "{} bytes", message.len());
}

#[test]
fn the_bound_of_an_end_is_that_beside_the_tenants_that_are_there() {
    let node = Node::start(&[]);
    let bound = || {
        let end = node.json(&["kill", "shop"]);
        node.done(&["start", "shop"]);
        end["bound_ns"].as_u64().expect("there is room for ends")
    };
    let alone = bound();
    assert_eq!(node.put("more", &table("more", "/more", "")).0, Some(0));
    let beside = bound();
    assert!(
        beside > alone,
        "one that was started before the other: {beside} and {alone}"
    );
    node.done(&["delete", "more"]);
    until("the other has gone", || bound() == alone);
}

#[test]
fn no_tenant_that_is_put_leaves_the_end_of_another_without_a_bound() {
    let directory = tempfile::tempdir().expect("a directory");
    let reserved = |name: &str, cpu: &str| table(name, &format!("/{name}"), cpu);
    let good = reserved("good", "cpu = { budget = \"3ms\", period = \"20ms\" }");
    let leases = LISTENER.to_owned() + &table("shop", "/*", "") + &good;
    let node = Node::start_in(directory, &leases, &[]);
    let bound = || {
        let end = node.json(&["kill", "shop"]);
        node.done(&["start", "shop"]);
        end["bound_ns"].as_u64()
    };
    assert!(bound().is_some());
    // It preempts the reservation for ends in each of its regions.
    let often = "cpu = { budget = \"500us\", period = \"10ms\", priority = 1 }";
    let (code, _, error) = node.put("often", &reserved("often", often));
    if code != Some(0) {
        assert!(
            error.contains("nothing would bound the end of tenant.shop"),
            "{error}"
        );
    }
    assert!(bound().is_some(), "{code:?}: {error}");
}

#[test]
fn requests_whose_clients_go_at_once_are_counted_as_those_of_their_tenant() {
    let node = Node::start(&[]);
    let count = |sample: &str| -> u64 {
        let metrics = raw(&node.socket(), "GET /metrics HTTP/1.1");
        let of_shop = |line: &&str| line.starts_with(sample) && line.contains("tenant=\"shop\"");
        let values = metrics.lines().filter(of_shop);
        let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>() as u64
    };
    for _ in 0..50 {
        let mut gone = TcpStream::connect(node.address).expect("connected");
        write!(gone, "GET /env HTTP/1.1\r\nHost: a\r\n\r\n").expect("written");
    }
    until("all are counted", || {
        count("leasehold_requests_total") == 50
    });
    let sent = count("leasehold_response_body_bytes_total");
    let mut head = TcpStream::connect(node.address).expect("connected");
    let request = "HEAD /env HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    head.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    head.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    until("it is counted", || count("leasehold_requests_total") == 51);
    assert_eq!(
        count("leasehold_response_body_bytes_total"),
        sent,
        "the answer to HEAD has no body"
    );
}

#[test]
fn no_lease_that_cannot_be_started_is_put_while_its_tenant_is_killed() {
    let node = Node::start(&[]);
    assert_eq!(
        node.put("more", &table("more", "/env", "")).1,
        "more: new\n"
    );
    let impossible = table("more", "/env", "").replace("200ms", "10us");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                node.command(&["kill", "more"]);
                node.command(&["start", "more"]);
            }
        });
        let answers: Vec<_> = (0..20).map(|_| node.put("more", &impossible)).collect();
        done.store(true, Ordering::Relaxed);
        let refused = answers.iter().filter(|answer| answer.0 == Some(77));
        assert_eq!(refused.count(), 20, "{answers:?}");
    });
    node.done(&["kill", "more"]);
    node.done(&["start", "more"]);
}

#[test]
fn no_tenant_is_put_or_read_whose_program_another_one_may_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let theirs = directory.path().join("theirs");
    fs::create_dir(&theirs).expect("made");
    let writes = "dirs = [{ host = \"theirs\", guest = \"/\", write = true }]\n";
    let leases = LISTENER.to_owned() + &table("shop", "/*", writes);
    let node = Node::start_in(directory, &leases, &[]);
    fs::copy(node.path("web.wasm"), theirs.join("p.wasm")).expect("copied");
    std::os::unix::fs::symlink("..", theirs.join("up")).expect("linked");
    for program in [
        "theirs/p.wasm",
        "theirs/../theirs/p.wasm",
        "theirs/up/web.wasm",
    ] {
        let more = table("more", "/env", "").replace("web.wasm", program);
        let refused = node.put("more", &more);
        assert_eq!(refused.0, Some(78), "{program}: {}", refused.2);
        assert!(
            refused.2.contains("the program of another tenant"),
            "{}",
            refused.2
        );
        node.leases(&(leases.clone() + &more));
        let refused = node.command(&["reload"]);
        assert_eq!(refused.0, Some(78), "{program}: {}", refused.2);
    }
}

#[test]
fn what_is_shown_lines_up_and_is_the_same_as_json() {
    let node = Node::start(&[]);
    assert_eq!(node.get("/").0, 200);
    let (code, out, _) = node.command(&["ps"]);
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("tenant") && lines[1].starts_with("shop"),
        "{out}"
    );
    assert!(
        node.command(&["top"]).1.contains("shop"),
        "once, without a terminal"
    );
    let snapshot = node.json(&["top"]);
    assert_eq!(snapshot["tenants"][0]["http"]["outcomes"]["answered"], 1);
    assert_eq!(
        snapshot["node"]["listeners"][0]["address"],
        node.address.to_string()
    );
    for part in ["statement", "processor", "memory", "requests"] {
        let answer = raw(
            &node.socket(),
            &format!("GET /v1/tenants/shop/{part} HTTP/1.1"),
        );
        assert!(answer.starts_with("HTTP/1.1 200"), "{part}: {answer}");
    }
    let description = raw(&node.socket(), "GET /openapi.json HTTP/1.1");
    assert!(description.contains("\"/v1/tenants/{name}/drain\""));
    assert!(raw(&node.socket(), "GET /v1/none HTTP/1.1").contains("not-found"));
    let malformed = [
        ("POST /v1/reload?dry_run=perhaps HTTP/1.1", "400"),
        ("POST /v1/reload?dryrun=true HTTP/1.1", "400"),
        ("GET /v1/tenants/shop/logs?lines=-1 HTTP/1.1", "400"),
        ("PUT /v1/tenants/%ff HTTP/1.1\r\nContent-Length: 0", "400"),
    ];
    for (head, status) in malformed {
        let answer = raw(&node.socket(), head);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {answer}"
        );
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let error: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(error["error"]["kind"], "bad-request", "{head}: {body}");
        assert!(
            error["error"]["message"].as_str().expect("text").len() > 10,
            "{body}"
        );
    }
    let long = "x".repeat(5 << 20);
    let length = long.len();
    let head = format!("POST /v1/leases/validate HTTP/1.1\r\nContent-Length: {length}");
    let refused = raw(&node.socket(), &format!("{head}\r\n\r\n{long}"));
    let is_told = refused.starts_with("HTTP/1.1 413") && refused.contains("bad-request");
    assert!(refused.is_empty() || is_told, "{refused}");
    let refused = raw(
        &node.socket(),
        &format!("GET /v1/node HTTP/1.1\r\nX: {}", &long[..1_000_000]),
    );
    assert!(
        refused.is_empty() || refused.starts_with("HTTP/1.1 431"),
        "{refused}"
    );
}

#[test]
fn events_arrive_in_order_and_a_slow_listener_holds_nothing() {
    let node = Node::start(&[]);
    let mut slow = std::os::unix::net::UnixStream::connect(node.socket()).expect("connected");
    slow.write_all(b"GET /v1/events?since=0 HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("written");
    for _ in 0..3 {
        node.json(&["kill", "shop"]);
        node.done(&["start", "shop"]);
    }
    let mut listener = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["events", "--since", "0", "--json", "--socket"])
        .arg(node.socket())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let out = BufReader::new(listener.stdout.take().expect("piped"));
    let events: Vec<Value> = out
        .lines()
        .take(7)
        .map(|line| serde_json::from_str(&line.expect("a line")).expect("an event"))
        .collect();
    listener.kill().expect("ended");
    listener.wait().expect("ended");
    let numbers: Vec<_> = events.iter().map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=7).map(Some).collect::<Vec<_>>());
    let kinds: Vec<_> = events
        .iter()
        .map(|event| event["kind"].as_str().expect("a kind"))
        .collect();
    assert_eq!(
        kinds,
        [
            "started", "ended", "started", "ended", "started", "ended", "started"
        ]
    );
    drop(slow);
}

#[test]
fn a_tenant_is_replaced_under_load_and_no_request_is_lost() {
    let node = Node::start(&[]);
    let (over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let (status, answer) = node.get("/");
                    assert_eq!(status, 200, "{answer}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..20 {
            let (code, _, error) = node.command(&["replace", "shop"]);
            assert_eq!(code, Some(0), "{error}");
        }
        // One after the other, without a pause.
        for _ in 0..100 {
            let head = "POST /v1/tenants/shop/replace HTTP/1.1\r\nContent-Length: 0";
            let answer = raw(&node.socket(), head);
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(answered.load(Ordering::Relaxed) > 20);
}

#[test]
fn requests_that_wait_when_a_tenant_is_replaced_are_answered_by_its_successor() {
    let node = Node::start(&[]);
    let narrow = |version: &str| {
        table("narrow", "/env", "")
            .replace("[\"/env\"]", "[\"/env\", \"/sleep\"], concurrency = 1")
            .replace("NAME = \"narrow\"", &format!("NAME = \"{version}\""))
    };
    assert_eq!(node.put("narrow", &narrow("first")).0, Some(0));
    let load = |what: &str, most: u32| {
        let tenants = node.json(&["ps"])["tenants"].clone();
        let tenants = tenants.as_array().expect("a list");
        let narrow = tenants.iter().find(|tenant| tenant["name"] == "narrow");
        narrow.expect("it is there")["http"][what] == most
    };
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| node.get("/sleep?ms=3000"));
        until("a request is under way", || load("active", 1));
        let waits = [(); 3].map(|()| scope.spawn(|| node.get("/env")));
        until("others wait", || load("waiting", 3));
        let (code, _, error) = node.put("narrow", &narrow("second"));
        assert_eq!(code, Some(0), "{error}");
        for wait in waits {
            let (status, answer) = wait.join().expect("an answer");
            assert_eq!(status, 200, "{answer}");
            assert!(answer.contains("NAME=second"), "{answer}");
        }
        assert_eq!(slow.join().expect("an answer").0, 200);
    });
}

#[test]
fn a_successor_that_could_never_start_is_refused_though_it_has_no_room_beside_its_tenant() {
    let wide = |reserve: &str| {
        let cpu = "cpu = { budget = \"60ms\", period = \"100ms\" }";
        let more = format!("{cpu}\nmemory = {{ reserve = \"{reserve}\" }}");
        table("wide", "/env", &more)
    };
    let directory = tempfile::tempdir().expect("a directory");
    let node = Node::start_in(directory, &(LISTENER.to_owned() + &wide("16MiB")), &[]);
    let (code, _, error) = node.put("wide", &wide("64KiB"));
    assert_eq!(code, Some(77), "{error}");
    assert!(error.contains("`memory.reserve`"), "{error}");
    assert_eq!(node.get("/env").0, 200, "nothing has changed");
    // With a lease that pays it takes the place.
    let (code, _, error) = node.put("wide", &wide("32MiB"));
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(node.get("/env").0, 200);
}

/// Another program of the same behaviour, which has to be compiled.
fn altered(node: &Node, round: u8) {
    let mut bytes = fs::read(node.path("web.wasm")).expect("read");
    // A custom section of this name.
    bytes.extend([0, 3, 2, b'a' + round, b'z']);
    fs::write(node.path("web.wasm"), bytes).expect("written");
}

#[test]
fn the_last_end_of_a_tenant_that_was_replaced_is_that_of_the_life_before() {
    let node = Node::start(&[]);
    let last = || {
        let answer = raw(&node.socket(), "GET /v1/tenants/shop HTTP/1.1");
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let tenant: Value = serde_json::from_str(body).expect("JSON");
        tenant["last_end"]["at"].as_str().map(str::to_owned)
    };
    let mut before = last();
    assert_eq!(before, None);
    for _ in 0..3 {
        node.done(&["replace", "shop"]);
        // The life before ends after the new one has begun.
        until("its end is shown", || last() > before);
        before = last();
    }
}

#[test]
fn what_is_ordered_while_a_tenant_is_replaced_is_not_undone_by_the_replacement() {
    let node = Node::start(&[]);
    let ask = |what: &str| {
        let head = format!("{what} HTTP/1.1\r\nContent-Length: 0");
        raw(&node.socket(), &head)
    };
    for round in 0..4 {
        altered(&node, round);
        std::thread::scope(|scope| {
            let replaced = scope.spawn(|| ask("POST /v1/tenants/shop/replace"));
            // It is compiling: that takes some hundred milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let order = ["kill", "drain"][usize::from(round % 2)];
            let ordered = ask(&format!("POST /v1/tenants/shop/{order}"));
            assert!(ordered.starts_with("HTTP/1.1 200"), "{ordered}");
            let replaced = replaced.join().expect("an answer");
            assert!(replaced.starts_with("HTTP/1.1 200"), "{replaced}");
            assert!(replaced.contains("\"desired\":\"stopped\""), "{replaced}");
        });
        assert_eq!(node.get("/").0, 503);
        node.done(&["start", "shop"]);
        assert_eq!(node.get("/").0, 200);
    }
    // A kill before the replacement is answered, too, whatever runs then.
    for _ in 0..10 {
        std::thread::scope(|scope| {
            let killed = scope.spawn(|| ask("POST /v1/tenants/shop/kill"));
            assert!(ask("POST /v1/tenants/shop/replace").starts_with("HTTP/1.1 200"));
            let killed = killed.join().expect("an answer");
            assert!(killed.starts_with("HTTP/1.1 200"), "{killed}");
        });
        node.done(&["start", "shop"]);
    }
    altered(&node, 4);
    std::thread::scope(|scope| {
        let replaced = scope.spawn(|| ask("POST /v1/tenants/shop/replace"));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let deleted = ask("DELETE /v1/tenants/shop");
        assert!(deleted.starts_with("HTTP/1.1 2"), "{deleted}");
        let replaced = replaced.join().expect("an answer");
        assert!(replaced.starts_with("HTTP/1.1 409"), "{replaced}");
        assert!(replaced.contains("was deleted while"), "{replaced}");
    });
    until("it is forgotten", || {
        ask("GET /v1/tenants/shop").starts_with("HTTP/1.1 404")
    });
}

#[test]
fn a_confined_node_answers_operators_without_a_system_call_that_is_on_no_list() {
    let node = Node::start(&["--confinement", "trap"]);
    let more = table("more", "/env", "");
    assert_eq!(node.put("more", &more).0, Some(0));
    node.done(&["replace", "more"]);
    node.done(&["top"]);
    node.done(&["logs", "shop"]);
    node.done(&["delete", "more"]);
    let (code, text) = node.end();
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn the_socket_is_for_this_user_and_goes_with_the_node() {
    use std::os::unix::fs::PermissionsExt;
    let node = Node::start(&[]);
    let socket = node.socket();
    let mode = fs::metadata(&socket).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pid = Pid::from_child(&node.child);
    kill_process(pid, Signal::TERM).expect("sent");
    until("the socket is removed", || !socket.exists());
    let (code, _, error) = node.command(&["ps"]);
    assert_eq!(code, Some(66), "{error}");
}

#[test]
fn the_page_is_reached_by_browsers_and_the_interface_behind_it_with_its_secret_only() {
    let mut node = Node::start(&["--page", "127.0.0.1:0", "--confinement", "trap"]);
    let mut errors = node.errors.take().expect("piped");
    let mut text = String::new();
    while !text.contains("#token=") {
        assert!(errors.read_line(&mut text).expect("a line") > 0, "{text}");
    }
    let link = text.split("the page: http://").nth(1).expect("a link");
    let (address, secret) = link.trim().split_once("/#token=").expect("a secret");
    let get = |path: &str, more: &str| {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}Connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let page = get("/", "");
    assert!(page.starts_with("HTTP/1.1 200 "), "{}", &page[..200]);
    assert!(
        page.to_ascii_lowercase()
            .contains("content-security-policy:")
    );
    assert!(get("/v1/tenants", "").starts_with("HTTP/1.1 401 "));
    let wrong = "Authorization: Bearer wrong\r\n";
    assert!(get("/v1/tenants", wrong).starts_with("HTTP/1.1 401 "));
    let right = format!("Authorization: Bearer {secret}\r\n");
    let tenants = get("/v1/tenants", &right);
    assert!(
        tenants.starts_with("HTTP/1.1 200 ") && tenants.contains("\"shop\""),
        "{tenants}"
    );
    let metrics = get("/metrics", &right);
    assert!(
        metrics.contains("leasehold_reclaim_budget_seconds{tenant=\"shop\"} 0.2"),
        "{metrics}"
    );
}

#[test]
fn a_page_where_a_tenant_may_listen_is_refused_with_both_named() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("profile.json"), calibrated::profile()).expect("written");
    for (page, listen) in [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "0.0.0.0")] {
        let free = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let [page, listen] = [page, listen].map(|ip| format!("{ip}:{port}"));
        let listens = format!("outgoing = {{ listen = [\"{listen}\"] }}");
        let leases = LISTENER.to_owned() + &table("shop", "/*", &listens);
        fs::write(directory.path().join("leases.toml"), leases).expect("written");
        let mut command = serve(directory.path(), &["--page", &page, "--for", "1s"]);
        let output = command.output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        let expected = format!(
            "leases.toml: tenant.shop.outgoing.listen: found {listen}; allowed: an address that the page does not \
             have: --page {page}"
        );
        assert_eq!(output.status.code(), Some(78), "{error}");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn a_page_at_an_address_that_no_socket_can_listen_at_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (page, expected) in [
        (
            "[::ffff:127.0.0.1]:7070",
            "found an IPv4-mapped address; allowed: the IPv4 form, \"127.0.0.1:7070\"",
        ),
        ("[ff02::1]:7070", "found a multicast address; allowed: "),
        ("localhost:7070", "found no address and port; allowed: "),
    ] {
        let mut command = serve(directory.path(), &["--page", page, "--for", "1s"]);
        let output = command.output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_node_admits_a_lease_file_as_the_command_does() {
    let node = Node::start(&[]);
    let small = "cpu = { budget = \"1ms\", period = \"20ms\" }";
    let file = LISTENER.to_owned() + &table("shop", "/*", small) + &table("rest", "/rest", "");
    let answered = admitted_alike(&node, &file);
    assert_eq!(answered["tenants"][1]["name"], "rest");
    // Some hosts leave less to real-time threads, which a confined process can no longer ask of them.
    let large = "cpu = { budget = \"95ms\", period = \"100ms\" }";
    admitted_alike(&node, &(LISTENER.to_owned() + &table("shop", "/*", large)));
}

/// The node's verdict on a lease file, which is the command's.
fn admitted_alike(node: &Node, text: &str) -> Value {
    let file = node.path("asked.toml");
    fs::write(&file, text).expect("written");
    let mut stream = std::os::unix::net::UnixStream::connect(node.socket()).expect("connected");
    let head = "POST /v1/leases/admit HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/toml\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{text}", text.len()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("--profile")
        .arg(node.path("profile.json"))
        .args(["admit", "--json"])
        .arg(&file)
        .output()
        .expect("runs");
    let mut printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut answered: Value = serde_json::from_str(body).expect("JSON");
    for report in [&mut printed, &mut answered] {
        let available = report["requests"]["available_bytes"].take();
        assert!(available.as_u64() > Some(0), "it is known: {available}");
    }
    assert_eq!(answered, printed);
    answered
}

#[test]
fn a_kill_is_answered_whatever_other_clients_of_the_socket_hold() {
    let node = Node::start(&[]);
    let ask = |head: &str| {
        let path = node.socket();
        let mut stream = std::os::unix::net::UnixStream::connect(path).expect("connected");
        write!(stream, "{head} HTTP/1.1\r\nHost: a\r\n").expect("written");
        stream
    };
    let begin_stream = |_| {
        let mut stream = ask("GET /v1/events");
        write!(stream, "\r\n").expect("written");
        let mut line = String::new();
        let mut reader = BufReader::new(stream);
        reader.read_line(&mut line).expect("a status");
        let status = line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse::<u16>().ok());
        (status.expect("a number"), reader)
    };
    let streams: Vec<_> = (0..60).map(begin_stream).collect();
    let with = |status| streams.iter().filter(|stream| stream.0 == status).count();
    assert_eq!((with(200), with(503)), (48, 12));
    // Bodies that never come.
    let bodies: Vec<_> = (0..60)
        .map(|_| {
            let mut stream = ask("POST /v1/leases/admit");
            write!(
                stream,
                "Content-Type: application/toml\r\nContent-Length: 100\r\n\r\n[tenant"
            )
            .expect("written");
            stream
        })
        .collect();
    // Clients that say nothing, more than there are connections.
    let silent: Vec<_> = (0..100)
        .map(|_| std::os::unix::net::UnixStream::connect(node.socket()).expect("connected"))
        .collect();
    let asked = Instant::now();
    let killed = node.command(&["kill", "shop"]);
    assert_eq!(killed.0, Some(0), "{}", killed.2);
    // Before the first head is due.
    assert!(asked.elapsed() < Duration::from_secs(5));
    drop((streams, bodies, silent));
    // Clients that wait for an end.
    assert_eq!(node.put("more", &table("more", "/more", "")).0, Some(0));
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = ask("GET /v1/tenants/more/wait?timeout=600s");
            write!(stream, "\r\n").expect("written");
            stream
        })
        .collect();
    let killed = node.command(&["kill", "more"]);
    assert_eq!(killed.0, Some(0), "{}", killed.2);
    assert!(asked.elapsed() < Duration::from_secs(30));
    let ended = |stream: &std::os::unix::net::UnixStream| {
        let mut line = String::new();
        let read = BufReader::new(stream).read_line(&mut line);
        read.is_ok() && line.starts_with("HTTP/1.1 200")
    };
    let told = waiting.iter().filter(|stream| ended(stream)).count();
    assert!((1..=48).contains(&told), "{told} of 100 waited");
}

#[test]
fn a_kill_is_answered_while_other_clients_connect_without_a_pause() {
    let node = Node::start(&[]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = std::collections::VecDeque::new();
                while !over.load(Ordering::Relaxed) {
                    held.extend(std::os::unix::net::UnixStream::connect(node.socket()));
                    if held.len() > 200 {
                        held.pop_front();
                    }
                }
            });
        }
        let killed: Vec<_> = (0..10)
            .map(|_| {
                let killed = node.command(&["kill", "shop"]);
                let started = node.command(&["start", "shop"]);
                (killed.0, started.0, killed.2, started.2)
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        for (killed, started, why, why_not) in killed {
            assert_eq!((killed, started), (Some(0), Some(0)), "{why}{why_not}");
        }
    });
}

#[test]
fn what_the_process_can_never_have_room_for_is_refused_and_the_present_tenant_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("place")).expect("made");
    let opens = |files: u32| {
        let place = "dirs = [{ host = \"place\", guest = \"/\" }]";
        let files = format!("files = {{ open = {files} }}\n{place}");
        table("shop", "/*", &files)
    };
    let listener = format!("{LISTENER}connections = 64\n");
    let node = Node::start_in(directory, &(listener.clone() + &opens(64)), &[]);
    let pid = Pid::from_child(&node.child);
    let most = Some(700);
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    prlimit(Some(pid), Resource::Nofile, limit).expect("limited");
    // What the process has room for if this tenant is alone with the listener, and more than that.
    assert_eq!(node.put("shop", &opens(200)).0, Some(0));
    for files in [400, 2000] {
        let refused = node.put("shop", &opens(files));
        assert_eq!(refused.0, Some(77), "{files}: {}", refused.2);
        assert!(refused.2.contains("descriptors"), "{}", refused.2);
        node.leases(&(listener.clone() + &opens(files)));
        let refused = node.command(&["reload"]);
        assert_eq!(refused.0, Some(77), "{files}: {}", refused.2);
        assert_eq!(node.get("/").0, 200, "it answers as before");
    }
}

#[test]
fn what_the_kernel_locks_for_operators_is_held_by_threads_that_wait_shortly_for_a_processor() {
    let node = Node::start(&[]);
    assert_eq!(node.put("more", &table("more", "/env", "")).0, Some(0));
    let told: Value = serde_json::from_str(&node.command(&["ps", "--json"]).1).expect("JSON");
    assert!(told.is_object(), "{told}");
    let tasks = format!("/proc/{}/task", node.child.id());
    let mut niceness = std::collections::BTreeMap::new();
    for task in fs::read_dir(tasks).expect("readable").flatten() {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let Some((name, numbers)) = stat.rsplit_once(") ") else {
            continue;
        };
        let name = name.split_once('(').expect("a name").1;
        let of_thread = numbers
            .split(' ')
            .nth(16)
            .and_then(|text| text.parse::<i32>().ok());
        niceness.insert(name.to_owned(), of_thread.expect("a number"));
    }
    // On hosts that leave the cell no core of its own, or refuse a niceness below 0, all have the usual one.
    let expected = match niceness["leasehold-front"] {
        -10 => -5,
        usual => usual,
    };
    for thread in ["leasehold-load", "leasehold-ctl", "leasehold"] {
        assert_eq!(niceness[thread], expected, "{thread}: {niceness:?}");
    }
}

#[test]
fn a_line_has_the_request_that_it_was_written_for_whatever_guests_write_and_however_many_do_at_once()
 {
    let node = Node::start(&["--log", "json"]);
    let times = [500, 600];
    std::thread::scope(|scope| {
        for ms in times {
            let node = &node;
            scope.spawn(move || assert_eq!(node.get(&format!("/log?ms={ms}")).0, 200));
        }
    });
    // Of a third request, which is the first one's execution, or another.
    assert_eq!(node.get("/log?ms=0").0, 200);
    let (code, _, shown) = node.command(&["logs", "shop"]);
    assert_eq!(code, Some(0), "{shown}");
    let (code, text) = node.end();
    assert_eq!(code, Some(0), "{text}");
    let objects = text.lines().filter(|line| line.starts_with('{'));
    let objects: Vec<Value> = objects
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for ms in [500, 600, 0] {
        let path = format!("/log?ms={ms}");
        let record = objects.iter().find(|object| object["path"] == path);
        let request = &record.unwrap_or_else(|| panic!("no {path} in {text}"))["request"];
        // Whole although both are written at once in parts, with a text that looks like another request, and
        // with an end that the guest has not written.
        let lines = [
            format!("one {ms} line {ms}"),
            "1 | request 1".to_owned(),
            format!("end {ms}"),
        ];
        let written: Vec<_> = objects
            .iter()
            .filter(|object| object["stream"] == "stderr" && object["request"] == *request)
            .map(|object| object["line"].as_str().expect("text"))
            .collect();
        assert_eq!(written, lines, "{text}");
        for line in lines {
            let line = format!("{request} | {line}");
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
    }
}

#[test]
fn the_access_log_and_the_lines_of_a_tenant_name_a_request_by_the_same_number() {
    let node = Node::start(&[]);
    assert_eq!(node.get("/").0, 200);
    assert_eq!(node.get("/log?ms=0").0, 200);
    let (code, text) = node.end();
    assert_eq!(code, Some(0), "{text}");
    let record = text.lines().find(|line| line.contains("/log?ms=0"));
    let record = record.unwrap_or_else(|| panic!("no record in {text}"));
    let request = record.split(' ').nth(1).expect("a number");
    for line in ["one 0 line 0", "1 | request 1", "end 0"] {
        let line = format!("shop {request} | {line}");
        assert!(
            text.lines().any(|written| written == line),
            "{line}: {text}"
        );
    }
}
