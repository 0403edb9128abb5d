//! The page of metrics: what is on it, and that Prometheus' own tools take it and the rules.

mod support;

use leasehold_front::{Front, Options, Site, Sockets};
use leasehold_lease::LeaseFile;
use leasehold_node::metrics::{CONTENT_TYPE, FAMILIES, Kind, Observation, render, table};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::{end, observation, site};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of all samples of a page.
fn samples(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    lines.map(name).collect()
}

#[test]
fn the_page_has_every_metric_of_the_table_and_no_other() {
    let page = render(observation());
    let described = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let described: BTreeSet<String> = described.map(str::to_owned).collect();
    let kind = |kind: Kind| format!("{kind:?}").to_lowercase();
    let table = FAMILIES.iter();
    let table: BTreeSet<String> = table
        .map(|family| format!("{} {}", family.name, kind(family.kind)))
        .collect();
    assert_eq!(described, table);
    let samples = samples(&page);
    for family in FAMILIES {
        assert!(samples.contains(&family.sample()), "{}", family.name);
    }
    assert!(page.ends_with("# EOF\n"));
}

#[test]
fn a_value_of_a_node_is_on_its_page_in_base_units() {
    let page = render(observation());
    let lines = [
        r#"leasehold_build_info{version="0.1.0"} 1.0"#,
        r#"leasehold_reloads_total{outcome="done"} 3.0"#,
        r#"leasehold_reloads_total{outcome="refused"} 1.0"#,
        r#"leasehold_tenant_up{tenant="shop"} 1.0"#,
        r#"leasehold_tenant_up{tenant="batch"} 0.0"#,
        r#"leasehold_tenant_wanted{tenant="batch"} 0.0"#,
        r#"leasehold_tenant_restarts_total{tenant="shop"} 3.0"#,
        r#"leasehold_reclaim_left_seconds{tenant="shop"} 0.02"#,
        r#"leasehold_processor_used_seconds_total{tenant="shop"} 2.5"#,
        r#"leasehold_processor_misses_total{tenant="shop"} 6.0"#,
        r#"leasehold_memory_left_bytes{tenant="shop"} 1024.0"#,
        r#"leasehold_requests_total{tenant="shop",outcome="answered"} 1.0"#,
        r#"leasehold_requests_total{tenant="shop",outcome="full"} 5.0"#,
        r#"leasehold_requests_waiting{tenant="shop"} 2.0"#,
        r#"http_server_active_requests{tenant="shop"} 1.0"#,
        r#"leasehold_front_processor_seconds_total{tenant="shop"} 0.003"#,
        r#"leasehold_connections_refused_total{listener="main",reason="source"} 2.0"#,
        r#"leasehold_ends_total{tenant="batch",exit="killed"} 2.0"#,
        r#"leasehold_end_bound_violations_total{tenant="batch"} 1.0"#,
        r#"leasehold_end_bound_violations_total{tenant="shop"} 0.0"#,
        r#"leasehold_end_prediction_violations_total{tenant="batch"} 1.0"#,
        r#"leasehold_end_measured_to_predicted_ratio_bucket{le="0.5"} 1"#,
        r#"leasehold_end_measured_to_predicted_ratio_bucket{le="1.5"} 2"#,
        r#"leasehold_end_wall_to_bound_ratio_bucket{le="0.1"} 0"#,
        r#"leasehold_end_wall_to_bound_ratio_bucket{le="+Inf"} 2"#,
        r#"leasehold_host_steps_exceeded_total{row="cell wake"} 2.0"#,
        r#"leasehold_cost_drifts_total{class="semaphore"} 1.0"#,
        r#"leasehold_spans_lost_total{reason="full"} 1.0"#,
    ];
    for line in lines {
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
    let processor_of_batch = r#"leasehold_processor_used_seconds_total{tenant="batch"}"#;
    assert!(!page.contains(processor_of_batch), "it does not run");
}

#[test]
fn names_in_labels_cannot_break_the_page() {
    let mut observed = observation();
    observed.snapshot.steps[0].row = "a \"b\" \\ c\nd".to_owned();
    let page = render(observed);
    assert!(page.contains(r#"{row="a \"b\" \\ c\nd"}"#), "{page}");
}

#[test]
fn a_tenant_that_is_forgotten_leaves_no_label() {
    let mut observed = observation();
    observed.ends.add(&end("vanished", 1, 1));
    observed.ends.forget("vanished");
    assert!(!render(observed).contains("vanished"));
}

#[test]
fn the_page_of_the_book_is_the_table() {
    let page = root().join("docs/metrics.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let begin = "<!-- metrics -->\n";
    let (before, rest) = text.split_once(begin).expect("its beginning");
    let (found, after) = rest.split_once("<!-- end -->").expect("its end");
    let table = table();
    if std::env::var_os("LEASEHOLD_WRITE_DOCS").is_some() {
        std::fs::write(&page, format!("{before}{begin}{table}<!-- end -->{after}"))
            .expect("written");
        return;
    }
    assert_eq!(found, table, "LEASEHOLD_WRITE_DOCS=1 writes it");
}

/// The names of metrics in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let legal = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !legal(letter));
    let is_ours = |word: &&str| {
        ["leasehold_", "http_server_", "http_client_"]
            .iter()
            .any(|begin| word.starts_with(begin))
    };
    words.filter(is_ours).map(str::to_owned).collect()
}

/// All values of this key, at any depth.
fn values<'a>(json: &'a Value, key: &str, into: &mut Vec<&'a str>) {
    match json {
        Value::Object(map) => map.iter().for_each(|(name, value)| match value {
            Value::String(text) if name == key => into.push(text),
            value => values(value, key, into),
        }),
        Value::Array(all) => all.iter().for_each(|value| values(value, key, into)),
        _ => {}
    }
}

#[test]
fn every_metric_of_the_dashboard_and_the_rules_is_on_the_page() {
    let samples = samples(&render(observation()));
    let dashboard = read("packaging/grafana/leasehold.json");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let mut texts = Vec::new();
    for key in ["expr", "query"] {
        values(&dashboard, key, &mut texts);
    }
    let rules = read("packaging/prometheus/alerts.yml");
    for (file, text) in [("dashboard", texts.join("\n")), ("rules", rules)] {
        let names = names(&text);
        assert!(names.len() > 6, "{file}: {names:?}");
        for name in names {
            assert!(samples.contains(&name), "{file}: {name}");
        }
    }
}

/// A tool of Prometheus, if it is installed; otherwise says that the test was skipped.
fn tool(name: &str) -> Option<Command> {
    let is_there = Command::new(name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if is_there.is_err() {
        eprintln!("skipped: no {name} (scripts/setup prometheus installs it)");
        return None;
    }
    Some(Command::new(name))
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(
        output.status.success(),
        "{command:?}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn promtool_takes_the_rules_and_the_scrape_and_each_rule_fires_when_it_should() {
    let folder = root().join("packaging/prometheus");
    let Some(mut promtool) = tool("promtool") else {
        return;
    };
    succeeds(
        promtool
            .args(["check", "rules"])
            .arg(folder.join("alerts.yml")),
    );
    let mut promtool = tool("promtool").expect("it was there");
    succeeds(
        promtool
            .args(["check", "config", "--syntax-only"])
            .arg(folder.join("scrape.yml")),
    );
    let mut promtool = tool("promtool").expect("it was there");
    succeeds(
        promtool
            .args(["test", "rules"])
            .arg(folder.join("alerts-test.yml")),
    );
    // Every rule has a test.
    let named = |text: &str, key: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| {
            let line = line.trim().trim_start_matches("- ");
            line.strip_prefix(key).map(|name| name.trim().to_owned())
        });
        lines.collect()
    };
    let rules = named(&read("packaging/prometheus/alerts.yml"), "alert:");
    let tested = named(&read("packaging/prometheus/alerts-test.yml"), "alertname:");
    assert_eq!(rules, tested);
    assert!(rules.len() >= 6);
}

/// Ends a program of the test with it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers every request with the page of what `observe` sees, if it has the token.
fn serve(observe: impl Fn() -> Observation + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &observe);
        }
    });
    address
}

fn answer(mut stream: TcpStream, observe: &impl Fn() -> Observation) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let (status, body) = match head.contains("authorization: bearer the-token") {
        true => ("200 OK", render(observe())),
        false => ("401 Unauthorized", String::new()),
    };
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}

/// The body of an answer of Prometheus' own interface.
fn ask(address: SocketAddr, query: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {query} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

#[test]
fn a_real_prometheus_scrapes_what_a_front_counted() {
    let Some(mut prometheus) = tool("prometheus") else {
        return;
    };
    let text = "[listener.main]\naddress = \"127.0.0.1:0\"\n[tenant.shop]\ncomponent = \"a\"\n\
                reclaim.budget = \"1ms\"\nhttp.routes = [\"/*\"]\n";
    let file = LeaseFile::parse(text, Path::new("lease.toml")).expect("a lease file");
    let http = file.tenants[0].http.clone().expect("it answers");
    let shop = Site::new("shop", &http, None);
    let sockets = Sockets::open(&file.listeners).expect("sockets");
    let front =
        Front::start(sockets, &[(shop.clone(), http)], Options::default()).expect("a front");
    front.serve();
    for _ in 0..3 {
        let mut client = TcpStream::connect(front.listening()[0].address).expect("connected");
        write!(
            client,
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        .expect("written");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("a response");
        assert!(
            response.starts_with("HTTP/1.1 503"),
            "no cell runs it: {response}"
        );
    }
    let counted = shop.clone();
    let node = serve(move || Observation {
        sites: vec![counted.snapshot()],
        ..observation()
    });

    // The rules and the scrape are those that are shipped, with this node's address and token.
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "the-token").expect("written");
    let rules = root().join("packaging/prometheus/alerts.yml");
    let scrape = read("packaging/prometheus/scrape.yml")
        .replace("127.0.0.1:9465", &node.to_string())
        .replace("/etc/prometheus/leasehold.token", &token.to_string_lossy())
        .replace(
            "/etc/prometheus/leasehold-alerts.yml",
            &rules.to_string_lossy(),
        )
        .replace("15s", "1s");
    let configuration = folder.path().join("prometheus.yml");
    std::fs::write(&configuration, scrape).expect("written");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let child = prometheus
        .arg(format!("--config.file={}", configuration.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _prometheus = Ended(child.expect("it starts"));

    let of = |query: &str| -> Option<String> {
        let answer = ask(address, &format!("/api/v1/query?query={query}"))?;
        let value = answer["data"]["result"][0]["value"][1].as_str()?;
        Some(value.to_owned())
    };
    let until = Instant::now() + Duration::from_secs(60);
    let refused = "leasehold_requests_total%7Boutcome=%22not-running%22%7D";
    while of(refused).is_none() {
        assert!(Instant::now() < until, "nothing was scraped");
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(of(refused).as_deref(), Some("3"));
    assert_eq!(of("up").as_deref(), Some("1"));
    // It has every metric, as what the table says it is.
    let metadata = ask(address, "/api/v1/metadata").expect("metadata");
    for family in FAMILIES {
        let kind = metadata["data"][family.name][0]["type"].as_str();
        let expected = format!("{:?}", family.kind).to_lowercase();
        assert_eq!(kind, Some(&*expected), "{}", family.name);
    }
}

#[test]
fn buckets_of_times_are_cumulative_and_complete() {
    let page = render(Observation {
        sites: vec![site(leasehold_front::Distribution::default())],
        ..observation()
    });
    let buckets = page
        .lines()
        .filter(|line| line.starts_with("http_server_request_duration_seconds_bucket"));
    let bounds: Vec<&str> = buckets.filter_map(|line| line.split('"').nth(1)).collect();
    // Those that OpenTelemetry's conventions advise are among them.
    let advised = [
        "0.005", "0.01", "0.025", "0.05", "0.075", "0.1", "0.25", "0.5", "0.75", "1.0", "2.5",
        "5.0", "7.5", "10.0",
    ];
    for bound in advised {
        assert!(bounds.contains(&bound), "{bound} in {bounds:?}");
    }
    assert_eq!(bounds.last(), Some(&"+Inf"));
}
