//! Components that answer HTTP requests: one execution for each request, and what ends it.

mod common;

use common::cell;
use common::http::{Server, receive, wait};
use leasehold_cell::exchange::{Failure, Fields};
use leasehold_cell::{Exit, Fresh, Lease, Serving};
use std::time::{Duration, Instant};

fn web(cell: &leasehold_cell::Cell, serving: Serving) -> Server {
    Server::start(cell, "web.wasm", Lease::default(), serving)
}

fn hostile(cell: &leasehold_cell::Cell, serving: Serving) -> Server {
    Server::start(cell, "hostile-http.wasm", Lease::default(), serving)
}

const KINDS: [Fresh; 2] = [Fresh::Instance, Fresh::Tenant];

const fn at_a_time(concurrency: u32, fresh: Fresh) -> Serving {
    Serving {
        concurrency,
        reuse: 1,
        fresh,
        timeout: Duration::from_secs(30),
    }
}

#[test]
fn a_component_answers_requests() {
    let cell = cell();
    for fresh in KINDS {
        let server = web(&cell, at_a_time(16, fresh));
        for _ in 0..100 {
            let hello = server.get("/").expect("a response");
            assert_eq!((hello.status, hello.text().as_str()), (200, "hello\n"));
        }
        assert_eq!(server.get("/nothing").expect("a response").status, 404);
        assert_eq!(
            server.get("/env").expect("a response").text(),
            "SHOP=open\n"
        );
        let slept = Instant::now();
        let sleep = server.get("/sleep?ms=50").expect("a response");
        assert_eq!(sleep.text(), "slept for 50 ms\n");
        assert!(slept.elapsed() >= Duration::from_millis(50));
        server.tenant.kill();
        assert_eq!(server.tenant.wait().expect("ended").exit, Exit::Killed);
    }
}

#[test]
fn a_large_initial_memory_is_shown_to_each_instance_as_it_was() {
    let cell = cell();
    let program = cell.load_handler(&common::guest("table.wasm"), &Lease::default());
    assert!(program.expect("a program").image().is_some());
    for fresh in KINDS {
        let server = Server::start(&cell, "table.wasm", Lease::default(), at_a_time(4, fresh));
        for _ in 0..10 {
            // Side by side, and one after the other in the same slots; each overwrites a part of it.
            let clients: Vec<_> = (0..4).map(|_| server.send("/")).collect();
            for mut client in clients {
                let answer = receive(&mut client).expect("a response");
                assert_eq!(answer.text(), "0 of 262144 wrong\n");
            }
        }
        server.tenant.kill();
        assert_eq!(server.tenant.wait().expect("ended").exit, Exit::Killed);
    }
}

#[test]
fn tenants_that_share_an_initial_memory_do_not_see_what_the_others_write() {
    let cell = cell();
    let start = || {
        Server::start(
            &cell,
            "table.wasm",
            Lease::default(),
            at_a_time(4, KINDS[0]),
        )
    };
    let servers = [start(), start()];
    for _ in 0..10 {
        // Each request overwrites a part of its memory.
        for server in &servers {
            let answer = server.get("/").expect("a response");
            assert_eq!(answer.text(), "0 of 262144 wrong\n");
        }
    }
    let [first, second] = servers;
    first.tenant.kill();
    assert_eq!(first.tenant.wait().expect("ended").exit, Exit::Killed);
    let answer = second.get("/").expect("a response");
    assert_eq!(answer.text(), "0 of 262144 wrong\n");
}

#[test]
fn a_head_that_is_there_comes_with_the_time_that_its_guest_took() {
    let cell = cell();
    let server = web(&cell, Serving::default());
    for _ in 0..100 {
        let mut client = server.send("/");
        wait(|context| client.poll_response(context).map(|head| head.is_ok()));
        assert!(client.timing().guest > Duration::ZERO);
    }
}

#[test]
fn fields_of_the_connection_are_not_shown() {
    let cell = cell();
    let server = web(&cell, Serving::default());
    let sent = [
        ("x-a", "1"),
        ("host", "shop.example"),
        ("x-b", "2"),
        ("connection", "close"),
    ];
    let mut client = server.begin("GET", "/headers", &sent);
    client.finish_body(None);
    let mut shown: Vec<String> = receive(&mut client)
        .expect("a response")
        .text()
        .lines()
        .map(str::to_owned)
        .collect();
    shown.sort();
    assert_eq!(shown, ["x-a=1", "x-b=2"]);
}

#[test]
fn bodies_larger_than_their_windows_stream_both_ways_with_their_trailers() {
    const BYTES: usize = 1 << 20;
    let cell = cell();
    let server = web(&cell, Serving::default());
    let mut client = server.begin("POST", "/echo", &[]);
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let (mut written, mut got) = (0, Vec::new());
    let head = wait(|context| {
        // The window of the request is full before the guest has answered.
        while written < BYTES
            && let std::task::Poll::Ready(part) = client.poll_write(context, &sent[written..])
        {
            written += part.expect("open");
        }
        client.poll_response(context).map(|head| head.cloned())
    });
    assert_eq!(head.expect("a head").status, 200);
    let mut is_finished = false;
    wait(|context| {
        loop {
            let mut moved = false;
            while written < BYTES
                && let std::task::Poll::Ready(part) = client.poll_write(context, &sent[written..])
            {
                written += part.expect("open");
                moved = true;
            }
            if written == BYTES && !is_finished {
                let mut trailers = Fields::new(server.limits.head_bytes);
                trailers.push("x-sum", b"42").expect("fits");
                client.finish_body(Some(trailers));
                is_finished = true;
            }
            match client.poll_read(context, 64 << 10) {
                std::task::Poll::Ready(part) => match part.expect("no failure") {
                    Some(part) => got.extend(part),
                    None => return std::task::Poll::Ready(()),
                },
                std::task::Poll::Pending if !moved => return std::task::Poll::Pending,
                std::task::Poll::Pending => {}
            }
        }
    });
    assert!(got == sent, "{} bytes came back", got.len());
    let trailers = client.trailers().expect("trailers");
    assert_eq!(trailers.get("x-sum"), Some(&b"42"[..]));
}

#[test]
fn a_response_waits_for_a_client_that_reads_slowly() {
    let cell = cell();
    let server = web(&cell, Serving::default());
    let mut client = server.send("/big?bytes=1000000");
    wait(|context| client.poll_response(context).map(|head| head.is_ok()));
    std::thread::sleep(Duration::from_millis(50));
    assert!(client.readable() <= server.limits.window_bytes as usize);
    let rest = receive(&mut client).expect("a response");
    assert_eq!(rest.body.len(), 1_000_000);
}

#[test]
fn a_trap_fails_its_own_request_and_no_other() {
    let cell = cell();
    for fresh in KINDS {
        let server = web(&cell, at_a_time(16, fresh));
        let mut slow = server.send("/sleep?ms=200");
        for _ in 0..10 {
            assert_eq!(server.get("/trap").unwrap_err(), Failure::Trap);
            assert_eq!(server.get("/").expect("a response").status, 200);
        }
        assert_eq!(receive(&mut slow).expect("a response").status, 200);
    }
}

#[test]
fn a_request_whose_client_has_gone_is_stopped_even_if_it_spins() {
    let cell = cell();
    for fresh in KINDS {
        let server = web(&cell, at_a_time(1, fresh));
        for _ in 0..5 {
            let spinning = server.send("/spin");
            std::thread::sleep(Duration::from_millis(20));
            drop(spinning);
            assert_eq!(server.get("/").expect("a response").text(), "hello\n");
        }
    }
}

#[test]
fn a_guest_that_works_on_after_its_response_makes_place_for_requests_that_wait() {
    let cell = cell();
    for fresh in KINDS {
        let server = hostile(&cell, at_a_time(1, fresh));
        for _ in 0..2 {
            assert_eq!(server.get("/linger").expect("a response").text(), "done");
            assert_eq!(server.get("/count").expect("a response").text(), "1");
        }
    }
}

#[test]
fn the_tenant_of_a_request_is_ended_soon_after_its_response_though_nothing_waits() {
    let cell = cell();
    let server = hostile(&cell, at_a_time(2, Fresh::Tenant));
    let groups = || server.tenant.statement().expect("alive").groups;
    assert_eq!(server.get("/count").expect("a response").text(), "1");
    std::thread::sleep(Duration::from_millis(50));
    let before = groups();
    assert_eq!(server.get("/linger").expect("a response").text(), "done");
    let began = Instant::now();
    while groups() > before {
        assert!(began.elapsed() < Duration::from_millis(500), "it spins on");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.get("/count").expect("a response").text(), "1");
}

#[test]
fn the_time_of_a_guest_is_counted_for_its_request() {
    let cell = cell();
    let server = web(&cell, Serving::default());
    let mut client = server.send("/");
    assert_eq!(receive(&mut client).expect("a response").status, 200);
    assert!(client.timing().queued.is_some());
    // The last part is counted when the guest leaves the processor.
    wait(|context| {
        context.waker().wake_by_ref();
        match client.timing().guest > Duration::ZERO {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    });
}

#[test]
fn requests_beyond_the_concurrency_wait() {
    let cell = cell();
    for fresh in KINDS {
        let server = web(&cell, at_a_time(2, fresh));
        let began = Instant::now();
        let mut clients: Vec<_> = (0..6).map(|_| server.send("/sleep?ms=50")).collect();
        for client in &mut clients {
            assert_eq!(receive(client).expect("a response").status, 200);
        }
        assert!(
            began.elapsed() >= Duration::from_millis(150),
            "at most two at a time"
        );
    }
}

#[test]
fn no_more_instances_are_made_than_requests_wait() {
    let cell = cell();
    let server = web(&cell, at_a_time(16, Fresh::Tenant));
    let groups = || server.tenant.statement().expect("alive").groups;
    let own = groups();
    for waiting in 1..=3 {
        let mut clients: Vec<_> = (0..waiting).map(|_| server.send("/sleep?ms=300")).collect();
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(groups(), own + 2 * waiting, "two for each");
        for client in &mut clients {
            assert_eq!(receive(client).expect("a response").status, 200);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_instance_answers_as_many_requests_as_it_may() {
    let cell = cell();
    let three = Serving {
        concurrency: 1,
        reuse: 3,
        ..Serving::default()
    };
    let server = hostile(&cell, three);
    let counts: Vec<String> = (0..7)
        .map(|_| server.get("/count").expect("a response").text())
        .collect();
    assert_eq!(counts, ["1", "2", "3", "1", "2", "3", "1"]);
    let fresh = hostile(&cell, at_a_time(1, Fresh::Instance));
    for _ in 0..3 {
        assert_eq!(fresh.get("/count").expect("a response").text(), "1");
    }
}

#[test]
fn a_kill_under_load_ends_every_request_and_returns_everything() {
    let cell = cell();
    for fresh in KINDS {
        for _ in 0..5 {
            let server = web(&cell, at_a_time(16, fresh));
            let mut clients: Vec<_> = (0..40)
                .map(|at| server.send(["/spin", "/sleep?ms=60000", "/big?bytes=10000000"][at % 3]))
                .collect();
            std::thread::sleep(Duration::from_millis(30));
            server.tenant.kill();
            let ended = server.tenant.wait().expect("ended");
            assert_eq!(ended.exit, Exit::Killed);
            assert!(ended.reclaimed.predicted_ns <= 10_000_000_000);
            for client in &mut clients {
                assert_eq!(receive(client).unwrap_err(), Failure::Ended);
            }
        }
        let server = web(&cell, at_a_time(16, fresh));
        assert_eq!(server.get("/").expect("a response").status, 200);
    }
}

#[test]
fn answers_are_those_of_the_interface() {
    let cell = cell();
    let server = hostile(&cell, Serving::default());
    let checks = server.get("/checks").expect("a response").text();
    let failed: Vec<&str> = checks
        .lines()
        .filter(|line| !line.ends_with("=true"))
        .collect();
    assert_eq!(failed, Vec::<&str>::new(), "{checks}");
    assert_eq!(
        server.get("/twice").expect("a response").text(),
        "true true true true"
    );
    assert_eq!(server.get("/silent").unwrap_err(), Failure::NoResponse);
    assert_eq!(server.get("/error").unwrap_err(), Failure::GuestError);
    assert_eq!(server.get("/short").unwrap_err(), Failure::Incomplete);
    assert_eq!(server.get("/long").unwrap_err(), Failure::Incomplete);
    assert_eq!(server.get("/drop").unwrap_err(), Failure::Incomplete);
    assert_eq!(server.get("/orphan").unwrap_err(), Failure::Trap);
    assert_eq!(server.get("/early").expect("a response").text(), "early");
}

#[test]
fn what_was_written_of_a_response_that_is_not_sent_is_no_part_of_the_one_that_is() {
    let cell = cell();
    for fresh in KINDS {
        let server = hostile(&cell, at_a_time(4, fresh));
        for _ in 0..5 {
            let given_up = server.get("/given-up").expect("a response");
            assert_eq!(
                (given_up.status, given_up.text()),
                (200, "given up".to_owned())
            );
            let kept_back = server.get("/kept-back").expect("a response");
            assert_eq!(
                (kept_back.status, kept_back.text()),
                (200, "kept back".to_owned())
            );
        }
    }
}

#[test]
fn a_guest_that_goes_on_after_its_response_is_ended_when_the_time_of_its_request_is_over() {
    let cell = cell();
    let serving = Serving {
        timeout: Duration::from_millis(200),
        ..at_a_time(4, Fresh::Instance)
    };
    let server = hostile(&cell, serving);
    let used = || server.tenant.processor().expect("alive").supply.used;
    for _ in 0..3 {
        assert_eq!(server.get("/linger").expect("a response").text(), "done");
    }
    // Nobody waits for its place.
    let began = Instant::now();
    loop {
        let before = used();
        std::thread::sleep(Duration::from_millis(50));
        if used() - before < 5_000_000 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "it spins on");
    }
    assert_eq!(server.get("/count").expect("a response").text(), "1");
}

#[test]
fn a_response_without_a_body_may_state_any_length() {
    let cell = cell();
    let server = hostile(&cell, Serving::default());
    for _ in 0..20 {
        for path in ["/described", "/described-shorter", "/described-longer"] {
            let mut client = server.begin("HEAD", path, &[]);
            client.finish_body(None);
            assert_eq!(receive(&mut client).map(|head| head.status), Ok(200));
        }
        // However the guest ends the body that it took, and whether or not it had the status then.
        for path in [
            "/unchanged",
            "/unchanged-late",
            "/unchanged-last",
            "/unchanged-dropped",
        ] {
            let unchanged = server.get(path).map(|head| head.status);
            assert_eq!(unchanged, Ok(304), "{path}");
        }
    }
}

#[test]
fn a_guest_that_takes_what_it_can_get_ends_alone() {
    let cell = cell();
    for fresh in KINDS {
        let good = web(&cell, Serving::default());
        let server = hostile(&cell, at_a_time(16, fresh));
        for path in ["/bomb", "/responses", "/large"] {
            for _ in 0..3 {
                let failure = server.get(path).unwrap_err();
                assert!(
                    matches!(failure, Failure::Refused | Failure::Trap),
                    "{path}: {failure}"
                );
                assert_eq!(good.get("/").expect("a response").status, 200);
                assert_eq!(server.get("/count").expect("a response").text(), "1");
            }
        }
    }
}

#[test]
fn what_instances_leave_behind_is_given_back_with_each() {
    let cell = cell();
    for fresh in KINDS {
        let server = hostile(&cell, at_a_time(1, fresh));
        let charged = |server: &Server| {
            let statement = server.tenant.statement().expect("alive");
            (statement.charged, statement.carved, statement.groups)
        };
        for _ in 0..20 {
            assert_eq!(server.get("/leak").expect("a response").text(), "leaked");
        }
        std::thread::sleep(Duration::from_millis(50));
        let before = charged(&server);
        for _ in 0..200 {
            assert_eq!(server.get("/leak").expect("a response").text(), "leaked");
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(charged(&server), before);
    }
}

#[test]
fn a_lease_that_pays_for_few_makes_requests_wait() {
    let cell = cell();
    let mut lease = Lease::default();
    lease.memory.reserve = leasehold_lease::ByteSize::new(4 << 20).expect("in range");
    let server = Server::start(&cell, "web.wasm", lease, Serving::default());
    let mut clients: Vec<_> = (0..20).map(|_| server.send("/sleep?ms=10")).collect();
    for client in &mut clients {
        assert_eq!(receive(client).expect("a response").status, 200);
    }
}

#[test]
fn a_request_whose_part_of_the_lease_does_not_pay_for_it_is_refused_and_the_next_one_is_too() {
    let cell = cell();
    let mut lease = Lease::default();
    lease.memory.reserve = leasehold_lease::ByteSize::new(4 << 20).expect("in range");
    let server = Server::start(&cell, "web.wasm", lease, at_a_time(16, Fresh::Tenant));
    for _ in 0..100 {
        assert_eq!(server.get("/").unwrap_err(), Failure::Refused);
    }
    let statement = server.tenant.statement().expect("alive");
    assert!(statement.groups <= 2, "at most one spare: {statement:?}");
    let served = Server::start(&cell, "web.wasm", lease, at_a_time(2, Fresh::Tenant));
    assert_eq!(served.get("/").expect("a response").status, 200);
}

#[test]
fn what_does_not_answer_requests_is_refused_with_the_reason() {
    let cell = cell();
    let lease = Lease::default();
    let command = cell.load_handler(&common::guest("hello-p2.wasm"), &lease);
    let error = command.expect_err("a command").to_string();
    assert!(error.contains("wasi:http/incoming-handler"), "{error}");
    let program = cell
        .load_handler(&common::guest("web.wasm"), &lease)
        .expect("loads");
    let request = leasehold_cell::StartRequest {
        program,
        lease,
        surroundings: leasehold_cell::Surroundings::default(),
    };
    let error = cell
        .start_tenant(request.clone())
        .map(drop)
        .expect_err("no requests");
    assert!(error.to_string().contains("start_serving"), "{error}");
    let intake = leasehold_cell::exchange::Intake::new(1);
    let lane = intake.lane().clone();
    let limits = leasehold_cell::exchange::ExchangeLimits::default();
    let (mut early, guest) = leasehold_cell::exchange::exchange(limits, common::http::head("/"), 1);
    assert!(lane.offer(guest).is_ok(), "it waits for the start");
    let mut poor = request;
    poor.lease.memory.reserve = leasehold_lease::ByteSize::new(64 << 10).expect("in range");
    let error = cell
        .start_serving(poor, intake, Serving::default())
        .map(drop)
        .expect_err("its memory is larger");
    assert!(error.to_string().contains("memory.reserve"), "{error}");
    let failure = common::http::receive(&mut early).map(drop);
    assert_eq!(failure, Err(Failure::Ended), "it does not wait for nothing");
}

#[test]
fn an_older_version_of_the_interfaces_is_as_good() {
    let cell = cell();
    let lease = Lease::default();
    let mut bytes = std::fs::read(common::guest("hostile-http.wasm")).expect("built");
    // As if it had been built against another version: the names have the same length.
    let (own, older) = (&b"@0.2.12"[..], &b"@0.2.10"[..]);
    let mut replaced = 0;
    for at in 0..bytes.len().saturating_sub(own.len()) {
        if bytes[at..].starts_with(own) {
            bytes[at..at + own.len()].copy_from_slice(older);
            replaced += 1;
        }
    }
    assert!(replaced > 5, "{replaced} names");
    let program = cell.compile_handler(&bytes, &lease).expect("compiles");
    let server = Server::start_program(&cell, program, lease, Serving::default());
    assert_eq!(server.get("/count").expect("a response").text(), "1");
}
