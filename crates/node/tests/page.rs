//! The page in a real browser, against an interface that plays a node: with the types of the real one, over
//! the real listener with its token, and with tenants that the test makes up. A real node under the page is
//! tested with the command `leasehold serve`.

mod browser;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use browser::Browser;
use fantoccini::key::Key;
use jiff::Timestamp;
use leasehold_node::PageListener;
use leasehold_node::view::{
    Cpu, Desired, End, EndBound, Event, EventKind, Exit, ExitKind, Http, Latency, LogLine,
    LogStream, Memory, Node, Processor, Reclaim, Snapshot, State as Doing, Statement, StatementRow,
    Supply, Tenant,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tempfile::TempDir;
use tokio::sync::oneshot;

const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

/// What the played node says.
struct Says {
    started_at: Timestamp,
    tenants: Vec<Tenant>,
    ends: Vec<End>,
    events: Vec<Event>,
    /// The numbers from which events were asked for.
    asked_since: Vec<u64>,
    lines: Vec<LogLine>,
}

#[derive(Clone)]
struct Played(Arc<Mutex<Says>>);

impl Played {
    fn new(tenants: Vec<Tenant>) -> Self {
        Self(Arc::new(Mutex::new(Says {
            started_at: Timestamp::now(),
            tenants,
            ends: Vec::new(),
            events: Vec::new(),
            asked_since: Vec::new(),
            lines: Vec::new(),
        })))
    }

    fn says(&self) -> MutexGuard<'_, Says> {
        self.0.lock().expect("no panic")
    }

    fn event(&self, kind: EventKind, tenant: &str, end: Option<End>) {
        let mut says = self.says();
        let seq = says.events.len() as u64 + 1;
        let tenant = Some(tenant.to_owned());
        says.events.push(Event {
            seq,
            at: Timestamp::now(),
            kind,
            tenant,
            message: None,
            end,
            missed: None,
        });
    }

    fn end(&self, end: End) {
        self.says().ends.push(end.clone());
        self.event(EventKind::Ended, &end.tenant.clone(), Some(end));
    }

    /// Serves it at an address until the returned value is stopped.
    async fn serve(&self, address: SocketAddr, token: &TokenFile) -> Served {
        let listener = PageListener::open(address, &token.0.path().join("token")).expect("listens");
        let open = listener.link();
        let interface = Router::new()
            .route("/v1/snapshot", get(snapshot))
            .route("/v1/events", get(events))
            .route("/v1/tenants/{name}/statement", get(statement))
            .route("/v1/tenants/{name}/logs", get(logs))
            .route("/v1/tenants/{name}/kill", post(kill))
            .with_state(self.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            listener.serve(interface, stopped).await.expect("serves");
        });
        let (host, secret) = open["http://".len()..]
            .split_once("/#token=")
            .expect("both");
        Served {
            address: host.parse().expect("an address"),
            secret: secret.to_owned(),
            open,
            stop: Some(stop),
            serving,
        }
    }
}

/// Where a node keeps its token from one start to the next.
struct TokenFile(TempDir);

impl TokenFile {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }
}

struct Served {
    address: SocketAddr,
    secret: String,
    /// What an operator opens.
    open: String,
    stop: Option<oneshot::Sender<()>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn stop(mut self) {
        drop(self.stop.take());
        self.serving.await.expect("stops");
    }
}

async fn snapshot(State(played): State<Played>) -> Json<Snapshot> {
    let says = played.says();
    let now = Timestamp::now();
    let node = Node {
        version: "1.2.3".to_owned(),
        started_at: says.started_at,
        uptime_ns: u64::try_from(now.duration_since(says.started_at).as_nanos()).expect("later"),
        order: "fixed-priority".to_owned(),
        realtime: "granted".to_owned(),
        own_core: Some(1),
        confinement: "no privileges".to_owned(),
        schedulable: true,
        utilization: 0.3,
        listeners: vec![],
    };
    Json(Snapshot {
        at: now,
        node,
        tenants: says.tenants.clone(),
        ends: says.ends.clone(),
        steps: vec![],
        costs: vec![],
        control: vec![],
        last_event: says.events.len() as u64,
    })
}

/// Answers with the events that there are, and ends: so each is asked for from where the last answer ended.
async fn events(
    State(played): State<Played>,
    Query(query): Query<BTreeMap<String, u64>>,
) -> ([(&'static str, &'static str); 1], String) {
    let mut says = played.says();
    let since = query["since"];
    says.asked_since.push(since);
    let mut text = String::new();
    for event in says.events.iter().filter(|event| event.seq > since) {
        let data = serde_json::to_string(event).expect("JSON");
        write!(text, "id: {}\ndata: {data}\n\n", event.seq).expect("text");
    }
    ([("content-type", "text/event-stream")], text)
}

async fn statement(
    State(played): State<Played>,
    Path(name): Path<String>,
) -> Result<Json<Statement>, StatusCode> {
    let says = played.says();
    let found = says
        .tenants
        .iter()
        .find(|tenant| tenant.name == name)
        .ok_or(StatusCode::NOT_FOUND)?;
    let charged_ns = found.reclaim.charged_ns.ok_or(StatusCode::CONFLICT)?;
    let budget_ns = found.reclaim.budget_ns;
    let row = StatementRow {
        class: "semaphore".to_owned(),
        count: 1234,
        reclamation_ns: charged_ns,
    };
    Ok(Json(Statement {
        budget_ns,
        charged_ns,
        left_ns: budget_ns - charged_ns,
        rows: vec![row],
    }))
}

/// Answers with the lines that there are, and ends.
async fn logs(State(played): State<Played>) -> String {
    let json = |line: &LogLine| serde_json::to_string(line).expect("JSON") + "\n";
    played.says().lines.iter().map(json).collect()
}

async fn kill(State(played): State<Played>, Path(name): Path<String>) -> Json<End> {
    {
        let mut says = played.says();
        let tenant = says
            .tenants
            .iter_mut()
            .find(|tenant| tenant.name == name)
            .expect("a tenant");
        tenant.state = Doing::Ended;
        tenant.desired = Desired::Stopped;
        tenant.exit = Some(exit(ExitKind::Killed));
        tenant.processor = None;
        tenant.reclaim.charged_ns = None;
        tenant.memory.used_bytes = None;
    }
    let end = end(&name, ExitKind::Killed, 12 * MS);
    played.end(end.clone());
    Json(end)
}

fn line(at: &str, text: &str) -> LogLine {
    let at = at.parse().expect("an instant");
    LogLine {
        at,
        stream: LogStream::Stdout,
        line: text.to_owned(),
        request: None,
    }
}

fn exit(kind: ExitKind) -> Exit {
    Exit {
        kind,
        code: None,
        message: None,
    }
}

fn tenant(name: &str) -> Tenant {
    Tenant {
        name: name.to_owned(),
        desired: Desired::Running,
        state: Doing::Running,
        since: Timestamp::now(),
        component: format!("{name}.wasm"),
        restarts: 2,
        exit: None,
        reclaim: Reclaim {
            budget_ns: 10 * MS,
            charged_ns: Some(4 * MS),
        },
        cpu: Some(Cpu {
            budget_ns: 2 * MS,
            period_ns: 10 * MS,
            priority: 10,
            policy: "sporadic".to_owned(),
            utilization: 0.2,
        }),
        processor: Some(Processor {
            state: Doing::Running,
            budget_ns: Some(2 * MS),
            period_ns: Some(10 * MS),
            left_ns: Some(MS),
            supply: Supply {
                misses: 7,
                ..Supply::default()
            },
        }),
        memory: Memory {
            reserve_bytes: 16 * MIB,
            limit_bytes: 64 * MIB,
            used_bytes: Some(24 * MIB),
        },
        end_bound: Some(EndBound {
            effect_ns: MS / 2,
            returned_ns: Some(63 * MS),
        }),
        http: Some(Http {
            routes: vec![format!("/{name}/*")],
            listeners: vec!["main".to_owned()],
            concurrency: 16,
            queue: 64,
            waiting: 0,
            active: 3,
            outcomes: BTreeMap::from([("answered".to_owned(), 100)]),
            latency: Latency {
                count: 100,
                p99_ns: 5 * MS,
                ..Latency::default()
            },
        }),
        outgoing: None,
        last_end: None,
    }
}

fn end(tenant: &str, kind: ExitKind, wall_ns: u64) -> End {
    let bound_ns = 63 * MS;
    End {
        tenant: tenant.to_owned(),
        at: Timestamp::now(),
        exit: exit(kind),
        predicted_ns: 4 * MS,
        measured_ns: MS,
        effect_ns: MS / 10,
        reusable_ns: MS / 5,
        wall_ns,
        bound_ns: Some(bound_ns),
        within_bound: Some(wall_ns <= bound_ns),
        budget_ns: 10 * MS,
        calls_under_way: 0,
    }
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

const CONNECTED: &str = "document.querySelector('.connection.connected')";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_shows_what_each_tenant_uses_of_its_three_reservations_and_follows_it() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let played = Played::new(vec![tenant("cart"), tenant("catalog")]);
    let served = played.serve(any_port(), &TokenFile::new()).await;
    browser.open(&served.open).await;
    browser
        .until("document.querySelectorAll('[data-tenant]').length === 2")
        .await;
    let row = browser.text("[data-tenant=cart]").await;
    for part in [
        "cart",
        "running",
        "4 of 10 ms",
        "of 20 %",
        "24 of 64 MiB",
        "5 ms",
        "7",
        "2",
    ] {
        assert!(row.contains(part), "no {part:?} in {row}");
    }
    let header = browser.text("header.node").await;
    for part in [
        "1.2.3",
        "fixed-priority",
        "granted, core 1",
        "30 % of a processor, schedulable",
    ] {
        assert!(header.contains(part), "no {part:?} in {header}");
    }
    played.says().tenants[0].reclaim.charged_ns = Some(9 * MS);
    browser
        .until("document.querySelector('[data-tenant=cart]').innerText.includes('9 of 10 ms')")
        .await;
    // The processor's share is what its counter grew by.
    for _ in 0..8 {
        if let Some(processor) = &mut played.says().tenants[1].processor {
            processor.supply.used_ns += 100 * MS;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    let share = "[data-tenant=catalog] .meter.cpu";
    let shown = format!("return document.querySelector('{share}').getAttribute('aria-valuetext')");
    let text = browser.run(&shown).await;
    assert!(!text.as_str().expect("text").starts_with("0 %"), "{text}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_broke_its_bound_is_told_from_one_that_kept_it() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let played = Played::new(vec![tenant("cart")]);
    let served = played.serve(any_port(), &TokenFile::new()).await;
    browser.open(&served.open).await;
    browser.until(CONNECTED).await;
    played.end(end("cart", ExitKind::Trap, 12 * MS));
    browser
        .until("document.querySelectorAll('.end').length >= 1")
        .await;
    assert_eq!(
        browser
            .run("return document.querySelectorAll('.end.broken').length")
            .await,
        json!(0)
    );
    played.end(end("cart", ExitKind::Trap, 80 * MS));
    browser
        .until("document.querySelectorAll('ol.ends > .end.broken').length === 1")
        .await;
    let broken = browser.text(".end.broken").await;
    for part in [
        "bound broken",
        "80 ms",
        "bound 63 ms",
        "predicted 4 ms of 10 ms",
    ] {
        assert!(broken.contains(part), "no {part:?} in {broken}");
    }
    // The bar goes beyond the mark of the bound, and in the colour of alarms.
    let drawn = browser
        .run(
            "const track = document.querySelector('.end.broken .track.over');
             const bar = track.querySelector('i'), probe = document.createElement('p');
             probe.style.color = 'var(--bad)'; track.append(probe);
             return [bar.getBoundingClientRect().right > track.querySelector('b').getBoundingClientRect().right,
                     getComputedStyle(bar).backgroundColor === getComputedStyle(probe).color]",
        )
        .await;
    assert_eq!(drawn, json!([true, true]));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_killed_by_keyboard_after_a_question_that_names_it_and_its_bound() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let played = Played::new(vec![tenant("cart"), tenant("catalog")]);
    let served = played.serve(any_port(), &TokenFile::new()).await;
    browser.open(&served.open).await;
    browser
        .until("document.querySelectorAll('[data-tenant]').length === 2")
        .await;
    browser.type_text("/").await;
    browser
        .until("document.activeElement.matches('input[type=search]')")
        .await;
    browser.type_text("catalog").await;
    browser
        .until("document.querySelectorAll('[role=row][data-tenant]').length === 1")
        .await;
    browser.tab_to("[data-tenant=catalog] a").await;
    browser.press(Key::Enter).await;
    browser
        .until("document.querySelector('main[data-tenant=catalog] table')")
        .await;
    assert!(browser.text("main").await.contains("semaphore"));
    browser.tab_to("[data-command=kill]").await;
    browser.press(Key::Enter).await;
    browser
        .until("document.querySelector('dialog[open]')")
        .await;
    let question = browser.text("dialog").await;
    for part in [
        "Kill catalog?",
        "3 requests of it are under way",
        "after 500 µs",
        "within 63 ms",
    ] {
        assert!(question.contains(part), "no {part:?} in {question}");
    }
    // What has the focus first does nothing, and leaves no trace.
    assert_eq!(
        browser
            .run("return document.activeElement.textContent")
            .await,
        json!("Cancel")
    );
    browser.press(Key::Escape).await;
    browser.until("!document.querySelector('dialog')").await;
    assert!(played.says().ends.is_empty());
    browser.tab_to("[data-command=kill]").await;
    browser.press(Key::Enter).await;
    browser
        .until("document.querySelector('dialog[open]')")
        .await;
    browser.tab_to("dialog [data-confirm=kill]").await;
    browser.press(Key::Enter).await;
    browser
        .until("document.querySelector('dialog')?.innerText.includes('The bound was kept')")
        .await;
    assert!(browser.text("dialog").await.contains("12 ms bound 63 ms"));
    assert_eq!(played.says().ends.len(), 1);
    browser.tab_to("dialog button").await;
    browser.press(Key::Enter).await;
    browser
        .until("document.querySelector('[data-command=start]')")
        .await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_that_the_node_is_gone_and_goes_on_with_the_next_event_when_it_is_back() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let played = Played::new(vec![tenant("cart")]);
    let token = TokenFile::new();
    played.event(EventKind::Started, "cart", None);
    let served = played.serve(any_port(), &token).await;
    let address = served.address;
    browser.open(&served.open).await;
    browser
        .until("document.querySelectorAll('.events li').length === 1")
        .await;
    served.stop().await;
    browser
        .until("document.querySelector('.connection.lost')?.innerText.includes('not connected')")
        .await;
    played.event(EventKind::Restarting, "cart", None);
    let asked_before = played.says().asked_since.len();
    let served = played.serve(address, &token).await;
    browser.until(CONNECTED).await;
    browser
        .until("document.querySelectorAll('.events li').length === 2")
        .await;
    assert_eq!(played.says().asked_since[asked_before], 1);
    assert!(browser.text(".events li").await.contains("restarting"));
    served.stop().await;
    // Another process, which numbers its events anew: all are heard, and what was heard before stays.
    {
        let mut says = played.says();
        says.started_at = Timestamp::now();
        says.events.clear();
    }
    for kind in [EventKind::Started, EventKind::Draining, EventKind::Refused] {
        played.event(kind, "cart", None);
    }
    let _served = played.serve(address, &token).await;
    browser
        .until("document.querySelectorAll('.events li').length === 5")
        .await;
    assert!(browser.text(".events li").await.contains("refused"));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_asks_nothing_of_any_other_address_and_cannot() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let played = Played::new(vec![tenant("cart")]);
    let token = TokenFile::new();
    let served = played.serve(any_port(), &token).await;
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    elsewhere.set_nonblocking(true).expect("set");
    browser.open(&served.open).await;
    browser.until(CONNECTED).await;
    let asked = browser
        .run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        .await;
    let asked = asked.as_array().expect("a list");
    assert!(!asked.is_empty());
    for name in asked {
        let name = name.as_str().expect("an address");
        assert!(
            name.starts_with(&format!("http://{}/v1/", served.address)),
            "{name}"
        );
        assert!(!name.contains(&served.secret), "{name}");
    }
    let location = browser.run("return location.href").await;
    assert_eq!(location, json!(format!("http://{}/#/", served.address)));
    // A script that got into the page could reach nothing else either.
    browser
        .run(&format!(
            "window.violations = []; const other = 'http://{}/';
             addEventListener('securitypolicyviolation', (event) => violations.push(event.effectiveDirective));
             fetch(other).catch(() => 0);
             new Image().src = other;
             const style = document.createElement('style'); style.textContent = 'p {{ color: red }}';
             document.head.append(style);",
            elsewhere.local_addr().expect("its address")
        ))
        .await;
    for directive in ["connect-src", "img-src", "style-src-elem"] {
        browser
            .until(&format!("violations.includes('{directive}')"))
            .await;
    }
    let connected = elsewhere.accept().map_err(|error| error.kind());
    assert!(matches!(connected, Err(std::io::ErrorKind::WouldBlock)));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_of_a_log_is_shown_once_and_as_text() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let played = Played::new(vec![tenant("cart")]);
    played.says().lines = vec![line("2026-11-24T18:00:01Z", "<b id=injected>one</b>")];
    let served = played.serve(any_port(), &TokenFile::new()).await;
    browser.open(&served.open).await;
    browser
        .until("document.querySelector('[data-tenant=cart]')")
        .await;
    browser.run("location.hash = '#/tenants/cart'").await;
    browser
        .until("document.querySelectorAll('.logs li').length === 1")
        .await;
    assert_eq!(browser.text(".logs code").await, "<b id=injected>one</b>");
    assert_eq!(
        browser
            .run("return document.querySelector('#injected')")
            .await,
        json!(null)
    );
    // Fractions of a second are written as short as they can be: instants do not sort as text.
    played
        .says()
        .lines
        .push(line("2026-11-24T18:00:01.5Z", "two"));
    browser
        .until("document.querySelectorAll('.logs li').length === 2")
        .await;
    played
        .says()
        .lines
        .push(line("2026-11-24T18:00:01.52Z", "three"));
    browser
        .until("document.querySelectorAll('.logs li').length === 3")
        .await;
    let shown =
        "return [...document.querySelectorAll('.logs code')].map((line) => line.textContent)";
    assert_eq!(
        browser.run(shown).await,
        json!(["<b id=injected>one</b>", "two", "three"])
    );
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_asks_for_the_token_when_it_has_another() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let played = Played::new(vec![tenant("cart")]);
    let token = TokenFile::new();
    let served = played.serve(any_port(), &token).await;
    browser
        .open(&format!("http://{}/#token=another", served.address))
        .await;
    browser.until("document.querySelector('#token')").await;
    assert!(
        browser
            .text("header.node")
            .await
            .contains("the token is wrong")
    );
    browser.tab_to("#token").await;
    browser.type_text(&served.secret).await;
    browser.press(Key::Enter).await;
    browser
        .until("document.querySelector('[data-tenant=cart]')")
        .await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_the_page_is_cut_at_a_width_of_360_pixels() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let long = "a-tenant-with-a-very-long-name-that-takes-more-than-one-line";
    let played = Played::new(vec![tenant(long), tenant("cart")]);
    played.end(end("cart", ExitKind::Trap, 80 * MS));
    let served = played.serve(any_port(), &TokenFile::new()).await;
    browser.resize(360, 800).await;
    browser.open(&served.open).await;
    for (name, view, shown) in [
        ("node", "#/", "[role=table]"),
        ("tenant", &format!("#/tenants/{long}"), "main.one table"),
    ] {
        browser.run(&format!("location.hash = '{view}'")).await;
        browser
            .until(&format!("document.querySelector('{shown}')"))
            .await;
        for scheme in ["light", "dark"] {
            browser.prefer(scheme).await;
            browser
                .picture(&format!("narrow-{name}-{scheme}.png"))
                .await;
        }
        let beyond = browser
            .run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            .await;
        assert_eq!(beyond, json!(0), "{view}");
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_can_be_read_in_light_and_in_dark() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let played = Played::new(vec![tenant("cart")]);
    played.end(end("cart", ExitKind::Trap, 80 * MS));
    let served = played.serve(any_port(), &TokenFile::new()).await;
    browser.open(&served.open).await;
    browser.until("document.querySelector('.end.broken')").await;
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        let poor = browser.run(POOR_CONTRASTS).await;
        assert_eq!(poor, json!([]), "{scheme}");
    }
    browser.close().await;
}

/// Texts whose contrast to what is behind them is less than 4.5, by the formula of WCAG 2.
const POOR_CONTRASTS: &str = r"
const parts = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const color = parts(getComputedStyle(at).backgroundColor);
    if (color.length === 3 || color[3] === 1) return color;
  }
  return [255, 255, 255];
};
const found = [];
let texts = 0;
for (const element of document.querySelectorAll('#page *')) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || !element.checkVisibility()) continue;
  texts += 1;
  const [a, b] = [light(parts(getComputedStyle(element).color)), light(behind(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) found.push(element.textContent + ' ' + contrast.toFixed(2));
}
return texts < 20 ? ['no text'] : found;";
