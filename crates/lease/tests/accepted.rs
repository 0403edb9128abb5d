//! What a lease file and the flags mean when they are accepted.

use std::path::Path;

use leasehold_lease::{
    ByteSize, Directory, EnvVar, Lease, LeaseFile, LeaseFlags, Memory, Nanoseconds, Reclaim,
    TenantSpec,
};

fn time(nanoseconds: u64) -> Nanoseconds {
    Nanoseconds::new(nanoseconds).expect("in range")
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
dirs = [
    { host = "./data", guest = "/data", write = true },
    { host = "/srv", guest = "/srv" },
]
reclaim = { budget = "500us", call_bytes = "1MiB" }
memory = { reserve = "16MiB", table_elements = 100_000 }
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
        dirs: vec![
            dir("/etc/leases/./data", "/data", true),
            dir("/srv", "/srv", false),
        ],
        lease: Lease {
            reclaim: Reclaim {
                budget: time(500_000),
                call_bytes: Some(size(1 << 20)),
            },
            memory: Memory {
                reserve: size(16 << 20),
                table_elements: 100_000,
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
            table_elements: 1_000_000
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
            table_elements: 4,
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
    expected.memory.table_elements = 10;
    assert_eq!(
        LeaseFlags {
            table_elements: Some(10),
            ..none
        }
        .over(base),
        expected
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
