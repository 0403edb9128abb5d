//! The meaning of accepted lease files and flags.

use std::net::Ipv6Addr;
use std::path::Path;

use leasehold_lease::{
    ByteSize, Cpu, Destination, DestinationHost, Directory, Disk, EnvVar, Files, KeyValue, Lease,
    LeaseFile, LeaseFlags, Memory, MemoryKind, Nanoseconds, Order, Outgoing, Paging, PagingFlag,
    Policy, Protocol, Reclaim, SharedPages, TenantSpec,
};

fn time(nanoseconds: u64) -> Nanoseconds {
    Nanoseconds::new(nanoseconds).expect("in range")
}

fn cpu(budget: u64, period: u64) -> Cpu {
    Cpu::new(time(budget), time(period)).expect("consistent")
}

fn size(bytes: u64) -> ByteSize {
    ByteSize::new(bytes).expect("in range")
}

#[test]
fn every_key_reaches_the_tenant() {
    let text = r#"
[tenant.thumbnailer]
component = "wasm/thumbnailer.wasm"
args = ["-v", ""]
env = { ZONE = "b", A = "c=d" }
config = { shop = "open", "a.b" = "" }
keyvalue = { file = "cart.redb", size = "64MiB" }
outgoing = { allow = ["https://*.Pay.example"], allow_private = ["http://[::1]:9"], listen = ["[::1]:7"], concurrency = 2, timeout = "1s", head = "4KiB", window = "8KiB", ca = "ca.pem" }
dirs = [
    { host = "./data", guest = "/data", write = true },
    { host = "/srv", guest = "/srv" },
]
reclaim = { budget = "500us", call_bytes = "1MiB" }
memory = { reserve = "16MiB", table_elements = 100_000, host = "32MiB", code = "1GiB", stack = "3MiB" }
cpu = { budget = "2ms", period = "10ms", priority = 10, nonpreemptive = "200us", policy = "deferrable", replenishments = 8, slice = "100us" }
files = { open = 20 }
disk = { bytes = "8MiB", files = 30 }
"#;
    let file = LeaseFile::parse(text, Path::new("/etc/leases/lease.toml")).expect(text);
    let var = |name: &str, value: &str| EnvVar {
        name: name.into(),
        value: value.into(),
    };
    let dir = |host: &str, guest: &str, write| Directory {
        host: host.into(),
        guest: guest.into(),
        write,
    };
    let expected = TenantSpec {
        name: "thumbnailer".into(),
        component: "/etc/leases/wasm/thumbnailer.wasm".into(),
        args: vec!["-v".into(), String::new()],
        env: vec![var("ZONE", "b"), var("A", "c=d")],
        config: vec![
            ("shop".into(), "open".into()),
            ("a.b".into(), String::new()),
        ],
        dirs: vec![
            dir("/etc/leases/./data", "/data", true),
            dir("/srv", "/srv", false),
        ],
        data: Vec::new(),
        keyvalue: Some(KeyValue {
            file: "/etc/leases/cart.redb".into(),
            size: size(64 << 20),
        }),
        outgoing: Some(Outgoing {
            allow: vec![
                Destination {
                    protocol: Protocol::Https,
                    host: DestinationHost::Below("pay.example".into()),
                    port: 443,
                    is_private: false,
                },
                Destination {
                    protocol: Protocol::Http,
                    host: DestinationHost::Address(Ipv6Addr::LOCALHOST.into()),
                    port: 9,
                    is_private: true,
                },
            ],
            listen: vec!["[::1]:7".parse().expect("an address")],
            concurrency: 2,
            timeout: time(1_000_000_000),
            head: size(4 << 10),
            window: size(8 << 10),
            ca: Some("/etc/leases/ca.pem".into()),
        }),
        swap: None,
        http: None,
        restart: leasehold_lease::Restart::Never,
        lease: Lease {
            reclaim: Reclaim {
                budget: time(500_000),
                call_bytes: Some(size(1 << 20)),
            },
            memory: Memory {
                reserve: size(16 << 20),
                paging: None,
                table_elements: 100_000,
                host: Some(size(32 << 20)),
                code: size(1 << 30),
                stack: size(3 << 20),
            },
            cpu: Some(
                cpu(2_000_000, 10_000_000)
                    .with_priority(10)
                    .with_nonpreemptive(time(200_000))
                    .and_then(|cpu| cpu.with_policy(Policy::Deferrable).with_replenishments(8))
                    .and_then(|cpu| cpu.with_slice(time(100_000)))
                    .expect("consistent"),
            ),
            files: Files { open: 20 },
            disk: Disk {
                bytes: size(8 << 20),
                files: 30,
            },
        },
    };
    assert_eq!(file.tenants, [expected]);
}

#[test]
fn tenants_keep_the_order_of_the_file_and_are_found_by_name() {
    let tenant =
        |name| format!("[tenant.{name}]\ncomponent = \"{name}\"\nreclaim.budget = \"1ms\"\n");
    let text = ["z", "m", "a", "10"].map(tenant).concat();
    let file = LeaseFile::parse(&text, Path::new("lease.toml")).expect(&text);
    let names: Vec<&str> = file
        .tenants
        .iter()
        .map(|tenant| tenant.name.as_str())
        .collect();
    assert_eq!(names, ["z", "m", "a", "10"]);
    assert_eq!(
        file.tenant("m").map(|tenant| tenant.component.as_path()),
        Some(Path::new("m"))
    );
    assert_eq!(file.tenant("n"), None);
}

#[test]
fn all_spellings_of_toml_mean_the_same() {
    let texts = [
        "[tenant.a]\ncomponent = \"a\"\nreclaim = { budget = \"1ms\" }\nmemory = { reserve = \"2B\" }",
        "tenant.a.component = \"a\"\ntenant.a.reclaim.budget = \"1ms\"\ntenant.a.memory.reserve = \"2B\"",
        "[tenant.a.memory]\nreserve = '2B'\n[tenant.a.reclaim]\nbudget = '1ms'\n[tenant.a]\ncomponent = 'a'",
        "tenant = { a = { component = \"a\", reclaim.budget = \"1ms\", memory.reserve = \"2B\" } }",
    ];
    let [first, others @ ..] =
        texts.map(|text| LeaseFile::parse(text, Path::new("lease.toml")).expect(text));
    for other in others {
        assert_eq!(other, first);
    }
}

#[test]
fn absent_keys_take_the_documented_defaults() {
    let text = "[tenant.a]\ncomponent = \"a\"\nreclaim.budget = \"1ms\"";
    let file = LeaseFile::parse(text, Path::new("lease.toml")).expect(text);
    let tenant = &file.tenants[0];
    assert!(tenant.args.is_empty() && tenant.env.is_empty() && tenant.dirs.is_empty());
    assert_eq!(tenant.lease.reclaim.call_bytes, None);
    assert_eq!(tenant.lease.memory.reserve, size(1 << 30));
    assert_eq!(tenant.lease.memory.table_elements, 1_000_000);
    assert_eq!(tenant.lease.cpu, None);
    assert_eq!(file.order, Order::FixedPriority);
}

#[test]
fn a_reservation_of_budget_and_period_takes_the_documented_defaults() {
    let text = "[tenant.a]\ncomponent = \"a\"\nreclaim.budget = \"1ms\"\n\
                cpu = { period = \"10us\", budget = \"10us\" }";
    let file = LeaseFile::parse(text, Path::new("lease.toml")).expect(text);
    let cpu = file.tenants[0].lease.cpu.expect("a reservation");
    assert_eq!((cpu.budget(), cpu.period()), (time(10_000), time(10_000)));
    assert_eq!((cpu.priority(), cpu.nonpreemptive()), (0, None));
    assert_eq!((cpu.policy(), cpu.replenishments()), (Policy::Sporadic, 16));
    assert_eq!(cpu.slice(), time(1_000_000));
}

#[test]
fn the_cell_of_a_file_is_ordered_as_the_file_says() {
    for (name, order) in [
        ("fixed-priority", Order::FixedPriority),
        ("earliest-deadline", Order::EarliestDeadline),
    ] {
        let text = format!(
            "[cell]\norder = \"{name}\"\n[tenant.a]\ncomponent = \"a\"\nreclaim.budget = \"1ms\""
        );
        let file = LeaseFile::parse(&text, Path::new("lease.toml")).expect(&text);
        assert_eq!(file.order, order);
        assert_eq!(order.to_string(), name);
        assert_eq!(name.parse(), Ok(order));
    }
}

#[test]
fn a_cpu_flag_means_what_the_same_keys_mean_in_a_file() {
    let flag = "period=10ms,budget=2ms,slice=100us,replenishments=64,policy=deferrable,\
                nonpreemptive=2ms,priority=255";
    let expected = cpu(2_000_000, 10_000_000)
        .with_priority(255)
        .with_policy(Policy::Deferrable)
        .with_nonpreemptive(time(2_000_000))
        .and_then(|cpu| cpu.with_replenishments(64))
        .and_then(|cpu| cpu.with_slice(time(100_000)));
    assert_eq!(flag.parse(), Ok(expected.expect("consistent")));
    assert_eq!("budget=1us,period=10us".parse(), Ok(cpu(1_000, 10_000)));
}

#[test]
fn a_cpu_flag_that_is_wrong_says_which_part_is() {
    let form = "budget=TIME,period=TIME, then any of priority=N, nonpreemptive=TIME, policy=NAME, \
                replenishments=N, slice=TIME, each at most once";
    let time = "a time with its unit (ns, us, ms, s), more than zero and at most 3600s, such as \
                \"500us\"";
    let priority = "a whole number from 0 to 255, where 255 is the most important";
    let count = "a whole number from 5 to 64";
    for (bad, found, allowed) in [
        ("", "\"\"", form),
        ("2ms", "\"2ms\"", form),
        ("budget=2ms", "\"budget=2ms\"", form),
        ("period=2ms", "\"period=2ms\"", form),
        ("budget=2ms,period=9ms,", "\"\"", form),
        ("budget=2ms,budget=2ms,period=9ms", "\"budget=2ms\"", form),
        ("budget=2ms,period=9ms,Priority=1", "\"Priority=1\"", form),
        ("budget=2,period=9ms", "\"2\" (no unit)", time),
        ("budget=0ms,period=9ms", "\"0ms\" (zero)", time),
        (
            "budget=9ms,period=2ms",
            "\"budget=9ms\"",
            "at most the period, which is 2ms",
        ),
        ("budget=2ms,period=9us", "\"period=9us\"", "at least 10us"),
        ("budget=9ns,period=1s", "\"budget=9ns\"", "at least 1us"),
        (
            "budget=2ms,period=9ms,nonpreemptive=3ms",
            "\"nonpreemptive=3ms\"",
            "at most the budget, which is 2ms",
        ),
        (
            "budget=2ms,period=9ms,priority=256",
            "\"priority=256\"",
            priority,
        ),
        (
            "budget=2ms,period=9ms,priority=-1",
            "\"priority=-1\"",
            priority,
        ),
        (
            "budget=2ms,period=9ms,priority=+1",
            "\"priority=+1\"",
            priority,
        ),
        (
            "budget=2ms,period=9ms,policy=fair",
            "\"policy=fair\"",
            "\"sporadic\" or \"deferrable\"",
        ),
        (
            "budget=2ms,period=9ms,replenishments=4",
            "\"replenishments=4\"",
            count,
        ),
        (
            "budget=2ms,period=9ms,replenishments=65",
            "\"replenishments=65\"",
            count,
        ),
        (
            "budget=2ms,period=9ms,slice=1ns",
            "\"slice=1ns\"",
            "at least 1us",
        ),
    ] {
        let error = bad.parse::<Cpu>().expect_err(bad).to_string();
        assert_eq!(error, format!("found {found}; allowed: {allowed}"), "{bad}");
    }
}

#[test]
fn the_lease_without_flags_is_50_ms_and_1_gib() {
    let lease = LeaseFlags::default().over(Lease::default());
    assert_eq!(
        lease.reclaim,
        Reclaim {
            budget: time(50_000_000),
            call_bytes: None
        }
    );
    assert_eq!(
        lease.memory,
        Memory {
            reserve: size(1 << 30),
            paging: None,
            table_elements: 1_000_000,
            host: None,
            code: size(512 << 20),
            stack: size(512 << 10),
        }
    );
}

#[test]
fn a_flag_replaces_its_value_and_no_other() {
    let base = Lease {
        reclaim: Reclaim {
            budget: time(1),
            call_bytes: Some(size(2)),
        },
        memory: Memory {
            reserve: size(3),
            paging: Some(Paging {
                limit: size(5),
                kind: MemoryKind::Hard,
                shared: SharedPages::Conserve,
                mappings: Paging::MAPPINGS,
            }),
            table_elements: 4,
            host: None,
            code: size(512 << 20),
            stack: size(1 << 20),
        },
        cpu: Some(cpu(1_000, 10_000)),
        files: Files { open: 6 },
        disk: Disk {
            bytes: size(7),
            files: 8,
        },
    };
    let none = LeaseFlags::default();
    assert_eq!(none.over(base), base);

    let mut expected = base;
    expected.reclaim.budget = time(10);
    assert_eq!(
        LeaseFlags {
            budget: Some(time(10)),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.files = Files { open: 10 };
    assert_eq!(
        LeaseFlags {
            open_files: Some(10),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.disk.bytes = size(10);
    assert_eq!(
        LeaseFlags {
            disk_bytes: Some(size(10)),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.disk.files = 0;
    assert_eq!(
        LeaseFlags {
            disk_files: Some(0),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.reclaim.call_bytes = Some(size(10));
    assert_eq!(
        LeaseFlags {
            call_bytes: Some(size(10)),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.memory.reserve = size(10);
    assert_eq!(
        LeaseFlags {
            reserve: Some(size(10)),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.memory.paging = Some(Paging {
        limit: size(20),
        kind: MemoryKind::Firm,
        shared: SharedPages::Conserve,
        mappings: Paging::MAPPINGS,
    });
    assert_eq!(
        LeaseFlags {
            paging: expected.memory.paging,
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.memory.table_elements = 10;
    assert_eq!(
        LeaseFlags {
            table_elements: Some(10),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.memory.code = size(1 << 20);
    assert_eq!(
        LeaseFlags {
            code_memory: Some(size(1 << 20)),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.memory.stack = size(2 << 20);
    assert_eq!(
        LeaseFlags {
            stack: Some(size(2 << 20)),
            ..none
        }
        .over(base),
        expected
    );

    let mut expected = base;
    expected.cpu = Some(cpu(2_000, 20_000));
    assert_eq!(
        LeaseFlags {
            cpu: expected.cpu,
            ..none
        }
        .over(base),
        expected
    );
}

#[test]
fn a_tenant_that_pages_states_its_limit_and_the_file_of_the_cell() {
    let text = r#"
[cell]
memory = "2GiB"
code = "3GiB"
[tenant.a]
component = "a"
reclaim.budget = "1ms"
memory = { reserve = "1MiB", limit = "64MiB", swap = "swap", kind = "firm", shared = "spel" }
data = [{ name = "weights", file = "w.bin" }, { name = "words", file = "/usr/words" }]
[tenant.b]
component = "b"
reclaim.budget = "1ms"
memory = { limit = "2GiB", swap = "../etc/swap" }
[tenant.c]
component = "c"
reclaim.budget = "1ms"
memory = { reserve = "2MiB", limit = "2MiB", swap = "none", kind = "hard" }
"#;
    let text = text.replace("../etc/swap", "/etc/swap");
    let file = LeaseFile::parse(&text, Path::new("/etc/lease.toml")).expect(&text);
    assert_eq!(file.memory, Some(size(2 << 30)));
    assert_eq!(file.swap(), Some(Path::new("/etc/swap")));
    let memory = |name| file.tenant(name).expect("a tenant").lease.memory;
    let firm = Paging {
        limit: size(64 << 20),
        kind: MemoryKind::Firm,
        shared: SharedPages::Lock,
        mappings: Paging::MAPPINGS,
    };
    assert_eq!(memory("a").paging, Some(firm));
    assert_eq!(memory("a").limit(), size(64 << 20));
    assert_eq!(memory("b").reserve, size(1 << 30), "the default");
    assert_eq!(memory("b").paging.map(|p| p.kind), Some(MemoryKind::Hard));
    assert_eq!(
        memory("c").paging,
        None,
        "nothing lies beyond its reservation"
    );
    assert_eq!(memory("c").limit(), size(2 << 20));
    assert_eq!(
        (file.memory, file.code),
        (Some(size(2 << 30)), Some(size(3 << 30)))
    );
    let data = &file.tenant("a").expect("a tenant").data;
    let sets: Vec<_> = data.iter().map(|set| (&*set.name, &*set.file)).collect();
    let expected = [("weights", "/etc/w.bin"), ("words", "/usr/words")];
    assert_eq!(sets, expected.map(|(name, file)| (name, Path::new(file))));
    let swap = |name| file.tenant(name).and_then(|tenant| tenant.swap.as_deref());
    assert_eq!(swap("a"), file.swap());
    assert_eq!(swap("b"), file.swap());
    assert_eq!(swap("c"), None);
}

#[test]
fn a_paging_flag_states_a_limit_and_a_file() {
    let flag = PagingFlag {
        paging: Paging {
            limit: size(64 << 20),
            kind: MemoryKind::Hard,
            shared: SharedPages::Conserve,
            mappings: Paging::MAPPINGS,
        },
        swap: "a=b".into(),
    };
    assert_eq!("limit=64MiB,swap=a=b".parse(), Ok(flag.clone()));
    assert_eq!("kind=hard,swap=a=b,limit=64MiB".parse(), Ok(flag));
    let fewer = "limit=64MiB,swap=x,mappings=16".parse::<PagingFlag>();
    assert_eq!(fewer.map(|flag| flag.paging.mappings), Ok(16));
    let mappings = "a whole number from 16 to 4096";
    let form = "limit=SIZE,swap=FILE, then kind=hard or kind=firm, shared=none, shared=spc, \
                shared=spel or shared=auto, and mappings=N, if wanted, each at most once, the file \
                not empty and without NUL";
    for (bad, found, allowed) in [
        ("", "\"\"", form),
        ("limit=64MiB", "\"limit=64MiB\"", form),
        ("swap=x", "\"swap=x\"", form),
        (
            "limit=64MiB,swap=x,mappings=15",
            "\"mappings=15\"",
            mappings,
        ),
        (
            "limit=64MiB,swap=x,mappings=4097",
            "\"mappings=4097\"",
            mappings,
        ),
        (
            "limit=64MiB,swap=x,mappings=-1",
            "\"mappings=-1\"",
            mappings,
        ),
        ("limit=64MiB,swap=", "\"swap=\"", form),
        ("limit=64MiB,swap=x,limit=1MiB", "\"limit=1MiB\"", form),
        ("limit=64MiB,swap=x,size=1MiB", "\"size=1MiB\"", form),
        (
            "limit=64MiB,swap=x,shared=lock",
            "\"shared=lock\"",
            "\"none\", \"spc\", \"spel\" or \"auto\"",
        ),
        (
            "limit=64MiB,swap=x,kind=soft",
            "\"kind=soft\"",
            "\"hard\" or \"firm\"",
        ),
    ] {
        let error = bad.parse::<PagingFlag>().expect_err(bad).to_string();
        assert_eq!(error, format!("found {found}; allowed: {allowed}"));
    }
    let error = "limit=64,swap=x"
        .parse::<PagingFlag>()
        .expect_err("no unit");
    assert!(
        error
            .to_string()
            .starts_with("found \"64\" (no unit); allowed: a size")
    );
}

#[test]
fn a_directory_flag_means_what_it_means_to_wasmtime_run() {
    let dir = |host: &str, guest: &str, write| Directory {
        host: host.into(),
        guest: guest.into(),
        write,
    };
    assert_eq!(".".parse(), Ok(dir(".", ".", true)));
    assert_eq!("a::/b".parse(), Ok(dir("a", "/b", true)));
    assert_eq!("a::/b::ro".parse(), Ok(dir("a", "/b", false)));
    for bad in [
        "",
        "::",
        "a::",
        "::b",
        "a::b::",
        "a::b::rw",
        "a::b::ro::",
        "a\0b",
    ] {
        let error = bad.parse::<Directory>().expect_err(bad).to_string();
        let allowed = "HOST, HOST::GUEST or HOST::GUEST::ro, without NUL";
        assert_eq!(error, format!("found {bad:?}; allowed: {allowed}"));
    }
}

#[test]
fn an_environment_flag_splits_at_the_first_equals_sign() {
    let var = |name: &str, value: &str| EnvVar {
        name: name.into(),
        value: value.into(),
    };
    assert_eq!("A=b=c".parse(), Ok(var("A", "b=c")));
    assert_eq!("A=".parse(), Ok(var("A", "")));
    for bad in ["", "A", "=b", "A\0=b", "A=\0"] {
        let error = bad.parse::<EnvVar>().expect_err(bad).to_string();
        let allowed = "NAME=VALUE, where NAME is not empty, without NUL";
        assert_eq!(error, format!("found {bad:?}; allowed: {allowed}"));
    }
}

#[test]
fn a_stack_flag_is_a_size_in_range_and_the_limit_on_the_host_has_room_for_it() {
    for (text, bytes) in [("512KiB", 512 << 10), ("64MiB", 64 << 20)] {
        assert_eq!(LeaseFlags::stack(text), Ok(size(bytes)));
    }
    for bad in ["511KiB", "65MiB", "1B"] {
        let error = LeaseFlags::stack(bad).expect_err(bad).to_string();
        let allowed = "a size from 512KiB to 64MiB";
        assert_eq!(error, format!("found {bad:?}; allowed: {allowed}"));
    }
    let memory = |stack| Memory {
        reserve: size(1 << 20),
        stack: size(stack),
        ..Memory::default()
    };
    assert_eq!(memory(1 << 20).host_limit(), size(128 << 20));
    assert_eq!(memory(64 << 20).host_limit(), size(256 << 20));
}

#[test]
fn a_table_elements_flag_is_a_count_in_range() {
    assert_eq!(LeaseFlags::table_elements("1"), Ok(1));
    assert_eq!(
        LeaseFlags::table_elements("10000000"),
        Ok(Memory::MAX_TABLE_ELEMENTS)
    );
    for bad in [
        "",
        "0",
        "+1",
        "-1",
        "10000001",
        "1e3",
        "1_000",
        "99999999999999999999",
    ] {
        let error = LeaseFlags::table_elements(bad).expect_err(bad).to_string();
        let allowed = "a whole number from 1 to 10000000";
        assert_eq!(error, format!("found {bad:?}; allowed: {allowed}"));
    }
}

#[test]
fn the_largest_file_is_accepted_and_one_byte_more_is_not() {
    let mut text = "[tenant.a]\ncomponent = \"a\"\nreclaim.budget = \"1ms\"\n#".to_owned();
    text.push_str(&"x".repeat(LeaseFile::MAX_BYTES - text.len()));
    let origin = Path::new("lease.toml");
    assert!(LeaseFile::parse(&text, origin).is_ok());
    text.push('x');
    assert!(LeaseFile::parse(&text, origin).is_err());
}

#[test]
fn a_loaded_file_resolves_paths_against_its_directory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("lease.toml");
    let text = "[tenant.a]\ncomponent = \"a.wasm\"\nreclaim.budget = \"1ms\"";
    std::fs::write(&path, text).expect("written");
    let file = LeaseFile::load(&path).expect(text);
    assert_eq!(file.tenants[0].component, dir.path().join("a.wasm"));
}

#[test]
fn a_table_that_is_left_out_counts_for_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("leases.toml");
    let tenant = |name: &str| {
        format!(
            "[tenant.{name}]\ncomponent = \"a.wasm\"\nreclaim.budget = \"1ms\"\nhttp.routes = [\"/*\"]\n\
             outgoing.listen = [\"127.0.0.1:7\"]\n[simulate.{name}]\n"
        )
    };
    let text = "[listener.main]\naddress = \"127.0.0.1:0\"\n".to_owned();
    std::fs::write(&path, text + &tenant("a") + &tenant("b")).expect("written");
    assert!(LeaseFile::load(&path).is_err());
    let without = |left_out: &[&str]| {
        let loaded = LeaseFile::load_without(&path, |name| left_out.contains(&name));
        let (file, left_out) = loaded.expect("a lease file");
        let tenants = file.tenants.into_iter().map(|tenant| tenant.name);
        (tenants.collect::<Vec<_>>(), left_out)
    };
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.into()).collect() };
    assert_eq!(without(&["a", "c"]), (names(&["b"]), names(&["a"])));
    assert_eq!(without(&["a", "b"]), (names(&[]), names(&["a", "b"])));
}
