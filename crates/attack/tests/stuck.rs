//! Kills at any instant of a `cabi_realloc` that is slow or never returns, for each function that can return a list or
//! a string.

use leasehold_attack::stuck::{Turns, handlers, missing, programs};
use leasehold_cell::exchange::{
    ClientHalf, ExchangeLimits, Fields, Intake, RequestHead, Scheme, exchange,
};
use leasehold_cell::keyvalue::Store;
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Cell, CellConfig, Directory, Exit, Lease, Program, Serving, StartRequest, Surroundings,
    TenantHandle,
};
use leasehold_lease::{ByteSize, Nanoseconds};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Kills of one run, unless LEASEHOLD_KILLS says otherwise.
const KILLS: u64 = 2_000;

/// A kill without an effect by then is lost.
const LOST: Duration = Duration::from_secs(60);

/// A cell, and what its tenants have.
struct Scene {
    cell: Cell,
    store: Arc<Store>,
    stores: TempDir,
}

impl Scene {
    fn new() -> Self {
        let stores = tempfile::tempdir().expect("a directory");
        let store = Store::open(&stores.path().join("store"), 1 << 20).expect("a store");
        let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
        Self {
            cell,
            store: Arc::new(store),
            stores,
        }
    }

    fn start(&self, program: &Arc<Program>, directory: &Path) -> TenantHandle {
        let request = self.request(program, directory);
        self.cell.start_tenant(request).expect("a tenant starts")
    }

    /// Starts a tenant that answers requests, and sends it one.
    fn serve(&self, program: &Arc<Program>, directory: &Path) -> (TenantHandle, ClientHalf) {
        let intake = Intake::new(4);
        let lane = intake.lane().clone();
        let request = self.request(program, directory);
        let tenant = self.cell.start_serving(request, intake, Serving::default());
        let limits = ExchangeLimits::default();
        let head = RequestHead {
            method: "OTHER".to_owned(),
            scheme: Scheme::Http,
            authority: "localhost".to_owned(),
            path_with_query: "/path".to_owned(),
            fields: Fields::new(limits.head_bytes),
        };
        let (client, guest) = exchange(limits, head, 0);
        assert!(lane.offer(guest).is_ok(), "the lane is empty");
        (tenant.expect("a tenant starts"), client)
    }

    fn request(&self, program: &Arc<Program>, directory: &Path) -> StartRequest {
        let mut lease = Lease::default();
        lease.reclaim.budget = Nanoseconds::new(50_000_000).expect("in range");
        lease.memory.reserve = ByteSize::new(16 << 20).expect("in range");
        StartRequest {
            program: program.clone(),
            lease,
            surroundings: Surroundings {
                args: Vec::from_iter((0..20).map(|n| format!("argument-{n}"))),
                env: Vec::from_iter((0..20).map(|n| (format!("NAME_{n}"), format!("value-{n}")))),
                config: [("f".to_owned(), "value".to_owned())].into(),
                keyvalue: Some(self.store.clone()),
                cwd: Some("/".to_owned()),
                dirs: vec![Directory {
                    host: directory.to_owned(),
                    guest: "/".to_owned(),
                    write: true,
                }],
                ..Surroundings::default()
            },
        }
    }

    /// The programs of all lists, those that answer requests last, and how many of these there are.
    fn compile(&self, turns: Turns, repeat: u32) -> (Vec<(String, Arc<Program>)>, usize) {
        let mut lease = Lease::default();
        lease.reclaim.budget = Nanoseconds::new(50_000_000).expect("in range");
        let commands = programs(turns, repeat).expect("well-formed").into_iter();
        let commands = commands.map(|made| (made.name, self.cell.compile(&made.bytes)));
        let serving = handlers(turns, repeat == 0).expect("well-formed");
        let count = serving.len();
        let serving = serving
            .into_iter()
            .map(|made| (made.name, self.cell.compile_handler(&made.bytes, &lease)));
        let all = commands.chain(serving);
        let all = all.map(|(name, program)| (name, program.expect("it compiles")));
        (all.collect(), count)
    }

    fn directory(&self) -> TempDir {
        tempfile::tempdir_in(self.stores.path()).expect("a directory")
    }
}

#[test]
fn no_function_that_returns_a_list_or_a_string_is_forgotten() {
    assert_eq!(missing().expect("well-formed"), Vec::<String>::new());
}

#[test]
fn each_function_of_the_list_calls_realloc() {
    let scene = Scene::new();
    let mut in_vain = Vec::new();
    let (made, serving) = scene.compile(Turns::Some(10), 3);
    for (name, program) in &made[..made.len() - serving] {
        let directory = scene.directory();
        let tenant = scene.start(program, directory.path());
        let ended = tenant.wait_for(LOST).expect("the cell is there");
        let exit = ended.map(|ended| ended.exit);
        if exit != Some(Exit::Code(0)) {
            in_vain.push((name.clone(), exit));
        }
    }
    // One that answers requests runs on only if it does not leave `cabi_realloc`.
    let (made, serving) = scene.compile(Turns::All, 1);
    for (name, program) in &made[made.len() - serving..] {
        let directory = scene.directory();
        let (tenant, _client) = scene.serve(program, directory.path());
        let began = Instant::now();
        while tenant.processor().expect("it runs").supply.used < 30_000_000 {
            if began.elapsed() > LOST {
                in_vain.push((name.clone(), None));
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        tenant.kill();
        assert!(tenant.wait_for(LOST).expect("the cell is there").is_some());
    }
    assert_eq!(in_vain, []);
}

/// Waits without giving the processor away: for some microseconds, a sleep is too coarse.
fn pass(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn no_kill_is_lost_whatever_the_host_call_and_the_instant() {
    let kills = std::env::var("LEASEHOLD_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("a number"));
    let scene = Scene::new();
    // Beside one that never gives the processor away, so that the alarm rings all the time.
    let spin = br#"(module (memory (export "memory") 1) (func (export "_start") (loop $again (br $again))))"#;
    let spin = scene.cell.compile(spin).expect("it compiles");
    let neighbour = scene.start(&spin, scene.stores.path());
    let mut compiled = Vec::new();
    for turns in [Turns::All, Turns::Some(1_000), Turns::Some(100_000)] {
        let (made, serving) = scene.compile(turns, 0);
        let first = made.len() - serving;
        for (number, (name, program)) in made.into_iter().enumerate() {
            compiled.push((name, turns, program, number >= first));
        }
    }
    let mut random = fastrand::Rng::with_seed(1);
    let (mut killed, mut ended_before, mut late) = (0_u64, 0_u64, 0_u64);
    let mut latest = Duration::ZERO;
    let used = || neighbour.processor().expect("it runs").supply.used;
    let mut before = used();
    for n in 0..kills {
        let (name, turns, program, serves) = &compiled[(n % compiled.len() as u64) as usize];
        let directory = scene.directory();
        let (tenant, _client) = match serves {
            true => {
                let (tenant, client) = scene.serve(program, directory.path());
                (tenant, Some(client))
            }
            false => (scene.start(program, directory.path()), None),
        };
        pass(Duration::from_nanos(random.u64(0..2_000_000)));
        let began = Instant::now();
        tenant.kill();
        let ended = tenant.wait_for(LOST).expect("the cell is there");
        let ended = ended.unwrap_or_else(|| panic!("{name}, {turns:?}, kill {n}: it was lost"));
        match ended.exit {
            Exit::Killed => killed += 1,
            // The lease may have ended it before: of some objects there are as many as it pays for.
            Exit::Lease(_) => ended_before += 1,
            other => panic!("{name}, {turns:?}, kill {n}: {other:?}"),
        }
        latest = latest.max(Duration::from_nanos(ended.reclaimed.effect_ns));
        late += u64::from(began.elapsed() > Duration::from_millis(200));
        if n % 100 == 99 {
            // Whatever loops, it is preempted.
            let now = used();
            assert!(now > before, "kill {n}: the neighbour has waited");
            before = now;
        }
    }
    println!(
        "{} programs: {killed} of {kills} kills met their tenant, {ended_before} came after its end, 0 were lost; \
         the latest took effect after {latest:?}, {late} were reported after more than 200 ms",
        compiled.len()
    );
    assert!(killed > kills / 2, "{killed}");
    neighbour.kill();
    let ended = neighbour.wait_for(LOST).expect("the cell is there");
    assert!(ended.is_some(), "the neighbour's kill was lost");
}
