//! Every fault of a lease file, and its one message.

use std::path::Path;

use leasehold_lease::{LeaseError, LeaseFile};

const TIME: &str = "allowed: a time with its unit (ns, us, ms, s), more than zero and at most \
                    3600s, such as \"500us\"";
const SIZE: &str = "allowed: a size with its unit (B, KiB, MiB, GiB, TiB), more than zero and at \
                    most 1TiB, such as \"16MiB\"";
const ELEMENTS: &str = "allowed: a whole number from 1 to 10000000";
const PATH: &str = "allowed: a path, not empty, without NUL";
const TENANT_KEYS: &str = "allowed: component, args, env, config, dirs, data, keyvalue, outgoing, reclaim, memory, cpu, files, disk, http, restart";

const ARGUMENTS: &str = "allowed: with the program's name at most 256 strings, of 64 KiB together";
const ENVIRONMENT: &str = "allowed: at most 256 strings, of 64 KiB together";

/// So many variables, all with names of their own.
fn variables(count: u32) -> String {
    let variable = |n| format!("V{n:03} = \"\"");
    (0..count).map(variable).collect::<Vec<_>>().join(", ")
}

fn message(text: &str) -> String {
    LeaseFile::parse(text, Path::new("lease.toml"))
        .expect_err(text)
        .to_string()
}

/// `[tenant.a]` with a sound component on line 2 and `line` on line 3.
fn tenant_with(line: &str) -> String {
    format!("[tenant.a]\ncomponent = \"a.wasm\"\n{line}\n")
}

/// A sound tenant of three lines with `line` on line 4.
fn sound_tenant_with(line: &str) -> String {
    tenant_with(&format!("reclaim = {{ budget = \"1ms\" }}\n{line}"))
}

#[test]
fn text_that_is_not_toml_names_its_place() {
    let rows = [
        (
            "[tenant.a",
            "1:10: found no TOML (unclosed table, expected `]`); allowed: TOML",
        ),
        (
            "\n\n  x = \"",
            "3:8: found no TOML (invalid basic string, expected `\"`); allowed: TOML",
        ),
        (
            "[tenant.a]\nargs = []\nargs = []",
            "3:1: found no TOML (duplicate key); allowed: TOML",
        ),
        (
            "[tenant.a]\n[tenant.a]",
            "2:9: found no TOML (duplicate key); allowed: TOML",
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(message(text), format!("lease.toml:{expected}"), "{text}");
    }
}

#[test]
fn a_file_without_a_complete_tenant_names_what_is_missing() {
    let budget = format!("1:9: tenant.a.reclaim.budget: found nothing; {TIME}");
    let rows = [
        (
            "",
            "1:1: tenant: found nothing; allowed: at least one table [tenant.NAME]",
        ),
        (
            "# empty\n",
            "1:1: tenant: found nothing; allowed: at least one table [tenant.NAME]",
        ),
        (
            "[tenant]",
            "1:1: tenant: found nothing; allowed: at least one table [tenant.NAME]",
        ),
        (
            "\n[tenant.a]\nreclaim = { budget = \"1ms\" }",
            "2:9: tenant.a.component: found nothing; allowed: a path, not empty, without NUL",
        ),
        (
            "[tenant.a]\ncomponent = \"a.wasm\"",
            "1:9: tenant.a.reclaim: found nothing; allowed: a table { budget, call_bytes }",
        ),
        ("[tenant.a.reclaim]\n", &budget.replace("1:9", "1:11")),
        (
            "tenant.a.reclaim.call_bytes = \"1MiB\"",
            &budget.replace("1:9", "1:10"),
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(message(text), format!("lease.toml:{expected}"), "{text}");
    }
}

#[test]
fn a_key_that_nothing_acts_on_is_refused_with_the_keys_that_are() {
    let rows = [
        (
            "tenants = 1",
            "1:1: tenants: found an unknown key; allowed: tenant, listener, cell, simulate",
        ),
        (
            &sound_tenant_with("network = { budget = \"2ms\" }"),
            &format!("4:1: tenant.a.network: found an unknown key; {TENANT_KEYS}"),
        ),
        (
            &sound_tenant_with("Memory = {}"),
            &format!("4:1: tenant.a.Memory: found an unknown key; {TENANT_KEYS}"),
        ),
        (
            &sound_tenant_with("memory = { reserve = \"1GiB\", size = \"2GiB\" }"),
            "4:30: tenant.a.memory.size: found an unknown key; allowed: reserve, limit, kind, \
             shared, swap, mappings, table_elements, host, code, stack",
        ),
        (
            &sound_tenant_with("memory.pages = \"1GiB\""),
            "4:8: tenant.a.memory.pages: found an unknown key; allowed: reserve, limit, kind, \
             shared, swap, mappings, table_elements, host, code, stack",
        ),
        (
            &tenant_with("reclaim = { budgte = \"1ms\" }"),
            "3:13: tenant.a.reclaim.budgte: found an unknown key; allowed: budget, call_bytes",
        ),
        (
            &tenant_with("dirs = [{ host = \"/\", guest = \"/\", read = true }]"),
            "3:36: tenant.a.dirs[0].read: found an unknown key; allowed: host, guest, write",
        ),
        (
            &sound_tenant_with("cpu.cores = 2"),
            "4:5: tenant.a.cpu.cores: found an unknown key; allowed: budget, period, priority, \
             nonpreemptive, policy, replenishments, slice",
        ),
        (
            "[cell]\ncores = 2",
            "2:1: cell.cores: found an unknown key; allowed: order, memory, code",
        ),
        (
            &tenant_with("\"a\\nb\\u001b\" = 1"),
            &format!("3:1: tenant.a.\"a\\nb\\u{{1b}}\": found an unknown key; {TENANT_KEYS}"),
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(message(text), format!("lease.toml:{expected}"), "{text}");
    }
}

#[test]
fn a_time_that_means_nothing_is_refused() {
    let rows = [
        ("\"500\"", "\"500\" (no unit)"),
        ("500", "the number 500"),
        ("0x1f4", "the number 0x1f4"),
        ("-5", "the number -5"),
        ("1.5", "the number 1.5"),
        ("nan", "the number nan"),
        ("inf", "the number inf"),
        ("true", "true"),
        ("1979-05-27", "a date or time"),
        ("[\"1ms\"]", "an array"),
        ("{}", "a table"),
        ("\"\"", "\"\" (not a plain decimal number)"),
        ("\"us\"", "\"us\" (not a plain decimal number)"),
        ("\"-5us\"", "\"-5us\" (not a plain decimal number)"),
        ("\"+5us\"", "\"+5us\" (not a plain decimal number)"),
        ("\"NaN\"", "\"NaN\" (not a plain decimal number)"),
        ("\"NaNus\"", "\"NaNus\" (not a plain decimal number)"),
        ("\".5ms\"", "\".5ms\" (not a plain decimal number)"),
        ("\"5.ms\"", "\"5.ms\" (not a plain decimal number)"),
        ("\"1.2.3ms\"", "\"1.2.3ms\" (not a plain decimal number)"),
        (
            "\"\u{0661}us\"",
            "\"\u{0661}us\" (not a plain decimal number)",
        ),
        ("\"5 us\"", "\"5 us\" (unknown unit)"),
        ("\"5US\"", "\"5US\" (unknown unit)"),
        ("\"5m\"", "\"5m\" (unknown unit)"),
        ("\"5MiB\"", "\"5MiB\" (unknown unit)"),
        ("\"1e3us\"", "\"1e3us\" (unknown unit)"),
        ("\"0us\"", "\"0us\" (zero)"),
        ("\"0.000s\"", "\"0.000s\" (zero)"),
        (
            "\"0.5ns\"",
            "\"0.5ns\" (not a whole number of the smallest unit)",
        ),
        (
            "\"1.0001us\"",
            "\"1.0001us\" (not a whole number of the smallest unit)",
        ),
        ("\"3601s\"", "\"3601s\" (too large)"),
        ("\"3600.000000001s\"", "\"3600.000000001s\" (too large)"),
        (
            "\"18446744073709551616ns\"",
            "\"18446744073709551616ns\" (too large)",
        ),
        (
            "\"18446744073709551615s\"",
            "\"18446744073709551615s\" (too large)",
        ),
    ];
    for (value, found) in rows {
        let text = tenant_with(&format!("reclaim = {{ budget = {value} }}"));
        let expected = format!("lease.toml:3:22: tenant.a.reclaim.budget: found {found}; {TIME}");
        assert_eq!(message(&text), expected, "{text}");
    }
}

#[test]
fn a_size_that_means_nothing_is_refused() {
    let rows = [
        ("16", "the number 16"),
        ("\"16MB\"", "\"16MB\" (unknown unit)"),
        ("\"16\"", "\"16\" (no unit)"),
        ("\"0B\"", "\"0B\" (zero)"),
        ("\"-1MiB\"", "\"-1MiB\" (not a plain decimal number)"),
        (
            "\"1.5B\"",
            "\"1.5B\" (not a whole number of the smallest unit)",
        ),
        ("\"1025GiB\"", "\"1025GiB\" (too large)"),
        (
            "\"99999999999999999999TiB\"",
            "\"99999999999999999999TiB\" (too large)",
        ),
    ];
    for (value, found) in rows {
        let text = sound_tenant_with(&format!("memory = {{ reserve = {value} }}"));
        let expected = format!("lease.toml:4:22: tenant.a.memory.reserve: found {found}; {SIZE}");
        assert_eq!(message(&text), expected, "{text}");

        let text = tenant_with(&format!("reclaim = {{ call_bytes = {value} }}"));
        let expected =
            format!("lease.toml:3:26: tenant.a.reclaim.call_bytes: found {found}; {SIZE}");
        assert_eq!(message(&text), expected, "{text}");
    }
}

#[test]
fn mappings_are_a_count_in_range_of_a_tenant_that_pages() {
    let paging = "reserve = \"1MiB\", limit = \"2MiB\", swap = \"x\"";
    for value in ["15", "4097", "-1"] {
        let text = sound_tenant_with(&format!("memory = {{ {paging}, mappings = {value} }}"));
        let error = LeaseFile::parse(&text, Path::new("lease.toml")).expect_err(&text);
        let error = error.to_string();
        let expected = "tenant.a.memory.mappings: found ";
        assert!(error.contains(expected), "{error}");
        assert!(
            error.ends_with("allowed: a whole number from 16 to 4096"),
            "{error}"
        );
    }
    let text = sound_tenant_with("memory = { reserve = \"1MiB\", mappings = 64 }");
    let error = LeaseFile::parse(&text, Path::new("lease.toml")).expect_err(&text);
    let allowed = "allowed: no such key, unless `limit` is more than the reserve";
    assert!(error.to_string().ends_with(allowed), "{error}");
}

#[test]
fn what_a_disk_cannot_be_asked_for_is_refused() {
    const FILES: &str = "allowed: a whole number from 0 to 1000000000";
    for (line, key, allowed) in [
        ("disk.bytes = 10", "disk.bytes", "allowed: a size with its"),
        ("disk.bytes = \"0MiB\"", "disk.bytes", "more than zero"),
        ("disk.files = -1", "disk.files", FILES),
        ("disk.files = 1000000001", "disk.files", FILES),
        ("disk.inodes = 1", "disk.inodes", "allowed: bytes, files"),
        ("disk = 1", "disk", "allowed: a table"),
    ] {
        let message = message(&sound_tenant_with(line));
        assert!(message.starts_with("lease.toml:4:"), "{message}");
        assert!(
            message.contains(&format!(": tenant.a.{key}: found ")),
            "{message}"
        );
        assert!(message.contains(allowed), "{message}");
    }
}

#[test]
fn a_stack_out_of_range_is_refused() {
    for value in ["511KiB", "1B", "65MiB", "1GiB"] {
        let text = sound_tenant_with(&format!("memory.stack = \"{value}\""));
        let found = message(&text);
        let expected = "allowed: a size from 512KiB to 64MiB";
        assert!(found.contains("tenant.a.memory.stack: found"), "{found}");
        assert!(found.ends_with(expected), "{found}");
    }
}

#[test]
fn a_count_of_table_elements_out_of_range_is_refused() {
    let rows = [
        ("0", "the number 0"),
        ("-1", "the number -1"),
        ("1.0", "the number 1.0"),
        ("10000001", "the number 10000001"),
        ("99999999999999999999", "the number 99999999999999999999"),
        ("\"1000\"", "\"1000\""),
    ];
    for (value, found) in rows {
        let text = sound_tenant_with(&format!("memory.table_elements = {value}"));
        let key = "tenant.a.memory.table_elements";
        let expected = format!("lease.toml:4:25: {key}: found {found}; {ELEMENTS}");
        assert_eq!(message(&text), expected, "{text}");
    }
}

#[test]
fn a_processor_reservation_that_means_nothing_is_refused() {
    let budget = "allowed: a time with its unit (ns, us, ms, s), at least 1us and at most the \
                  period, such as \"2ms\"";
    let period = "allowed: a time with its unit (ns, us, ms, s), at least 10us and at most 3600s, \
                  such as \"10ms\"";
    let priority = "allowed: a whole number from 0 to 255, where 255 is the most important";
    let policy = "allowed: \"sporadic\" or \"deferrable\"";
    let count = "allowed: a whole number from 5 to 64";
    let rows = [
        (
            "1",
            "4:7: {cpu}: found the number 1; allowed: a table".to_owned(),
        ),
        (
            "{}",
            format!("4:1: {{cpu}}.budget: found nothing; {budget}"),
        ),
        (
            "{ budget = \"2ms\" }",
            format!("4:1: {{cpu}}.period: found nothing; {period}"),
        ),
        (
            "{ budget = \"0ms\", period = \"1s\" }",
            format!("4:18: {{cpu}}.budget: found \"0ms\" (zero); {budget}"),
        ),
        (
            "{ budget = \"-2ms\", period = \"1s\" }",
            format!("4:18: {{cpu}}.budget: found \"-2ms\" (not a plain decimal number); {budget}"),
        ),
        (
            "{ budget = 2, period = \"1s\" }",
            format!("4:18: {{cpu}}.budget: found the number 2; {budget}"),
        ),
        (
            "{ budget = \"999ns\", period = \"1s\" }",
            "4:18: {cpu}.budget: found \"999ns\"; allowed: at least 1us".to_owned(),
        ),
        (
            "{ budget = \"2ms\", period = \"0s\" }",
            format!("4:34: {{cpu}}.period: found \"0s\" (zero); {period}"),
        ),
        (
            "{ budget = \"2us\", period = \"9999ns\" }",
            "4:34: {cpu}.period: found \"9999ns\"; allowed: at least 10us".to_owned(),
        ),
        (
            "{ budget = \"1ms\", period = \"3601s\" }",
            format!("4:34: {{cpu}}.period: found \"3601s\" (too large); {period}"),
        ),
        (
            "{ period = \"10ms\", budget = \"10.001ms\" }",
            "4:35: {cpu}.budget: found \"10.001ms\"; allowed: at most the period, which is 10ms"
                .to_owned(),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", nonpreemptive = \"3ms\" }",
            "4:57: {cpu}.nonpreemptive: found \"3ms\"; allowed: at most the budget, which is 2ms"
                .to_owned(),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", nonpreemptive = \"0ns\" }",
            format!("4:57: {{cpu}}.nonpreemptive: found \"0ns\" (zero); {TIME}"),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", priority = 256 }",
            format!("4:52: {{cpu}}.priority: found the number 256; {priority}"),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", priority = -1 }",
            format!("4:52: {{cpu}}.priority: found the number -1; {priority}"),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", priority = \"high\" }",
            format!("4:52: {{cpu}}.priority: found \"high\"; {priority}"),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", policy = \"fair\" }",
            format!("4:50: {{cpu}}.policy: found \"fair\"; {policy}"),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", policy = true }",
            format!("4:50: {{cpu}}.policy: found true; {policy}"),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", replenishments = 4 }",
            format!("4:58: {{cpu}}.replenishments: found the number 4; {count}"),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", replenishments = 65 }",
            format!("4:58: {{cpu}}.replenishments: found the number 65; {count}"),
        ),
        (
            "{ budget = \"2ms\", period = \"9ms\", slice = \"1ns\" }",
            "4:49: {cpu}.slice: found \"1ns\"; allowed: at least 1us".to_owned(),
        ),
    ];
    for (value, expected) in rows {
        let text = sound_tenant_with(&format!("cpu = {value}"));
        let expected = expected.replace("{cpu}", "tenant.a.cpu");
        assert_eq!(message(&text), format!("lease.toml:{expected}"), "{text}");
    }
}

#[test]
fn a_memory_reservation_that_contradicts_itself_is_refused() {
    let swap = "\"none\", or the path of a file that pages are written to";
    let rows = [
        (
            "reserve = \"2MiB\", limit = \"1MiB\", swap = \"x\"",
            "4:38: tenant.a.memory.limit: found \"1MiB\"; allowed: at least the reserve, which is \
             2MiB"
                .to_owned(),
        ),
        (
            "reserve = \"2MiB\", limit = \"3MiB\"",
            "4:38: tenant.a.memory.limit: found \"3MiB\"; allowed: at most the reserve, which is \
             2MiB, unless `swap` names a file"
                .to_owned(),
        ),
        (
            "limit = \"2GiB\", swap = \"none\"",
            "4:20: tenant.a.memory.limit: found \"2GiB\"; allowed: at most the reserve, which is \
             1GiB, unless `swap` names a file"
                .to_owned(),
        ),
        (
            "reserve = \"63KiB\", limit = \"3MiB\", swap = \"x\"",
            "4:22: tenant.a.memory.reserve: found \"63KiB\"; allowed: at least 64KiB if `limit` is \
             more"
                .to_owned(),
        ),
        (
            "kind = \"firm\"",
            "4:19: tenant.a.memory.kind: found \"firm\"; allowed: \"hard\", unless `limit` is more \
             than the reserve"
                .to_owned(),
        ),
        (
            "swap = \"x\"",
            "4:19: tenant.a.memory.swap: found \"x\"; allowed: \"none\", unless `limit` is more \
             than the reserve"
                .to_owned(),
        ),
        (
            "kind = \"soft\"",
            "4:19: tenant.a.memory.kind: found \"soft\"; allowed: \"hard\" or \"firm\"".to_owned(),
        ),
        (
            "shared = \"spel\"",
            "4:21: tenant.a.memory.shared: found \"spel\"; allowed: \"none\", unless `limit` is \
             more than the reserve"
                .to_owned(),
        ),
        (
            "shared = \"lock\"",
            "4:21: tenant.a.memory.shared: found \"lock\"; allowed: \"none\", \"spc\", \"spel\" or \
             \"auto\""
                .to_owned(),
        ),
        (
            "swap = \"\"",
            format!("4:19: tenant.a.memory.swap: found \"\"; allowed: {swap}"),
        ),
        (
            "swap = false",
            format!("4:19: tenant.a.memory.swap: found false; allowed: {swap}"),
        ),
    ];
    for (keys, expected) in rows {
        let text = sound_tenant_with(&format!("memory = {{ {keys} }}"));
        assert_eq!(message(&text), format!("lease.toml:{expected}"));
    }
}

#[test]
fn data_sets_that_make_no_sense_are_refused() {
    let paging = "memory = { limit = \"2GiB\", swap = \"x\" }\n";
    let name = "allowed: a name that no other data set has: 1 to 63 bytes, without NUL";
    for (data, memory, expected) in [
        (
            "[{ name = \"w\", file = \"w\" }]",
            "",
            "found a table; allowed: nothing, unless `memory.limit` is more than the reserve"
                .replace("a table", "an array"),
        ),
        (
            "[{ name = \"\", file = \"w\" }]",
            paging,
            format!("tenant.a.data[0].name: found \"\"; {name}"),
        ),
        (
            "[{ name = \"w\", file = \"w\" }, { name = \"w\", file = \"v\" }]",
            paging,
            format!("tenant.a.data[1].name: found \"w\"; {name}"),
        ),
        (
            "[{ name = \"w\" }]",
            paging,
            "tenant.a.data[0].file: found nothing; allowed: a path".to_owned(),
        ),
        (
            "[{ name = \"w\", at = 1 }]",
            paging,
            "tenant.a.data[0].at: found an unknown key; allowed: name, file".to_owned(),
        ),
    ] {
        let refused = message(&sound_tenant_with(&format!("{memory}data = {data}")));
        assert!(refused.contains(&expected), "{refused}");
    }
}

#[test]
fn a_cell_has_one_swap_file() {
    let memory = |file| format!("memory = {{ limit = \"2GiB\", swap = \"{file}\" }}\n");
    let second = "[tenant.b]\ncomponent = \"b\"\nreclaim.budget = \"1ms\"\n";
    let first = sound_tenant_with(&memory("x"));
    let refused = message(&format!("{first}{second}{}", memory("y")));
    assert!(
        refused.ends_with(
            "tenant.b.memory.swap: found \"y\"; allowed: \"none\", or the file \"x\" that a tenant \
             before it names: a cell has one"
        ),
        "{refused}"
    );
}

#[test]
fn an_order_that_no_cell_has_is_refused() {
    let allowed = "allowed: \"fixed-priority\" or \"earliest-deadline\"";
    for (text, expected) in [
        (
            "[cell]\norder = \"fair\"",
            format!("2:9: cell.order: found \"fair\"; {allowed}"),
        ),
        (
            "[cell]\norder = 1",
            format!("2:9: cell.order: found the number 1; {allowed}"),
        ),
        (
            "cell = 1",
            "1:8: cell: found the number 1; allowed: a table".to_owned(),
        ),
    ] {
        assert_eq!(message(text), format!("lease.toml:{expected}"), "{text}");
    }
}

#[test]
fn more_tenants_than_a_cell_can_have_are_counted_and_refused() {
    let tenants = |count: usize, padding: &str| -> String {
        let tenant =
            |n| format!("[tenant.t{n}]\ncomponent = \"a\"\nreclaim.budget = \"1ms\"\n{padding}");
        (0..count).map(tenant).collect()
    };
    let most = LeaseFile::MAX_TENANTS;
    let file = LeaseFile::parse(&tenants(most, ""), Path::new("lease.toml")).expect("the most");
    assert_eq!(file.tenants.len(), most);

    let allowed = "allowed: at most 10000 tables [tenant.NAME]";
    let expected = format!("lease.toml:1:2: tenant: found 10001 tables; {allowed}");
    assert_eq!(message(&tenants(most + 1, "")), expected);
    // Too long to be parsed, so the place is that of the file.
    let expected = format!("lease.toml:1:1: tenant: found 100000 tables; {allowed}");
    assert_eq!(message(&tenants(100_000, "# and more\n")), expected);
}

#[test]
fn a_tenant_that_cannot_be_started_as_described_is_refused() {
    let string = "allowed: a string without NUL";
    let rows = [
        (
            "tenant = 1",
            "1:10: tenant: found the number 1; allowed: a table".to_owned(),
        ),
        (
            "tenant.a = 1",
            "1:12: tenant.a: found the number 1; allowed: a table".to_owned(),
        ),
        (
            "[[tenant.a]]",
            "1:1: tenant.a: found an array; allowed: a table".to_owned(),
        ),
        (
            "[tenant.\"a b\"]",
            "1:9: tenant.\"a b\": found the name \"a b\"; allowed: 1 to 63 of A-Z a-z 0-9 - _"
                .to_owned(),
        ),
        (
            "[tenant.\"\"]",
            "1:9: tenant.\"\": found the name \"\"; allowed: 1 to 63 of A-Z a-z 0-9 - _".to_owned(),
        ),
        (
            "[tenant.a]\ncomponent = 7",
            format!("2:13: tenant.a.component: found the number 7; {PATH}"),
        ),
        (
            "[tenant.a]\ncomponent = \"\"",
            format!("2:13: tenant.a.component: found \"\"; {PATH}"),
        ),
        (
            "[tenant.a]\ncomponent = \"a\\u0000b\"",
            format!("2:13: tenant.a.component: found \"a\\0b\"; {PATH}"),
        ),
        (
            "[tenant.a]\nargs = \"-v\"",
            "2:8: tenant.a.args: found \"-v\"; allowed: an array of strings without NUL".to_owned(),
        ),
        (
            "[tenant.a]\nargs = [\"-v\", 3]",
            format!("2:15: tenant.a.args[1]: found the number 3; {string}"),
        ),
        (
            &format!("[tenant.a]\ncomponent = \"a\"\nargs = {:?}", ["-v"; 256]),
            format!("3:8: tenant.a.args: found 257 strings of 770 bytes; {ARGUMENTS}"),
        ),
        (
            &tenant_with(&format!("args = [\"{}\"]", "v".repeat(1 << 16))),
            format!("3:8: tenant.a.args: found 2 strings of 65544 bytes; {ARGUMENTS}"),
        ),
        (
            &tenant_with(&format!("env = {{ {} }}", variables(257))),
            format!("3:7: tenant.a.env: found 257 strings of 1542 bytes; {ENVIRONMENT}"),
        ),
        (
            "[tenant.a]\nargs = [\"\\u0000\"]",
            format!("2:9: tenant.a.args[0]: found \"\\0\"; {string}"),
        ),
        (
            "[tenant.a]\nenv = [\"K=V\"]",
            "2:7: tenant.a.env: found an array; allowed: a table".to_owned(),
        ),
        (
            "[tenant.a]\nenv.N = 1",
            format!("2:9: tenant.a.env.N: found the number 1; {string}"),
        ),
        (
            "[tenant.a]\nenv = { \"A=B\" = \"c\" }",
            "2:9: tenant.a.env.\"A=B\": found the name \"A=B\"; allowed: a name that is not empty \
             and has no \"=\" and no NUL"
                .to_owned(),
        ),
        (
            "[tenant.a]\ndirs = { host = \".\" }",
            "2:8: tenant.a.dirs: found a table; allowed: an array of tables { host, guest, write }"
                .to_owned(),
        ),
        (
            "[tenant.a]\ndirs = [1]",
            "2:9: tenant.a.dirs[0]: found the number 1; allowed: a table".to_owned(),
        ),
        (
            "[tenant.a]\ndirs = [{ guest = \"/\" }]",
            format!("2:9: tenant.a.dirs[0].host: found nothing; {PATH}"),
        ),
        (
            "[tenant.a]\ndirs = [{ host = \".\" }]",
            format!("2:9: tenant.a.dirs[0].guest: found nothing; {PATH}"),
        ),
        (
            "[tenant.a]\ndirs = [{ host = \".\", guest = \"/\", write = \"yes\" }]",
            "2:44: tenant.a.dirs[0].write: found \"yes\"; allowed: true or false".to_owned(),
        ),
        (
            "[tenant.a]\ndirs = [{ host = \"a\", guest = \"/\" }, { host = \"b\", guest = \"/\" }]",
            "2:60: tenant.a.dirs[1].guest: found \"/\"; allowed: a guest path that no other \
             directory has"
                .to_owned(),
        ),
        (
            "[tenant.a]\nreclaim = \"1ms\"",
            "2:11: tenant.a.reclaim: found \"1ms\"; allowed: a table".to_owned(),
        ),
        (
            "[tenant.a]\nmemory = \"1GiB\"",
            "2:10: tenant.a.memory: found \"1GiB\"; allowed: a table".to_owned(),
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(message(text), format!("lease.toml:{expected}"), "{text}");
    }
}

#[test]
fn of_several_faults_the_first_in_the_file_is_reported() {
    let text = "[tenant.zebra]\nnoise = 1\nblue = 2\n[tenant.ant]\nnoise = 3\n";
    assert_eq!(
        message(text),
        format!("lease.toml:2:1: tenant.zebra.noise: found an unknown key; {TENANT_KEYS}"),
    );
}

#[test]
fn columns_count_characters_after_any_line_ending() {
    let text = "[tenant.a]\r\nargs = [\"\u{e9}\u{1f980}\", 1]";
    let expected = "lease.toml:2:15: tenant.a.args[1]: found the number 1; allowed: a string \
                    without NUL";
    assert_eq!(message(text), expected);
}

#[test]
fn a_message_stays_one_short_line_whatever_the_file_says() {
    let long = "9".repeat(100_000);
    let name = "n\\n".repeat(30_000);
    let texts = [
        tenant_with(&format!("reclaim.budget = {long}")),
        tenant_with(&format!("reclaim.budget = \"{long}\"")),
        tenant_with(&format!("memory.table_elements = {long}")),
        tenant_with(&format!("{long} = 1")),
        tenant_with(&format!("\"{name}\" = 1")),
        format!("[tenant.{long}]"),
        format!("[tenant.\"{name}\"]"),
        "[".repeat(100_000),
        format!("x = {}", "[".repeat(100_000)),
        format!("{}x = 1", "a.".repeat(100_000)),
    ];
    for text in texts {
        let message = message(&text);
        assert!(message.len() < 400 && !message.contains('\n'), "{message}");
    }
}

#[test]
fn the_parts_of_an_error_can_be_told_apart() {
    let text = tenant_with("reclaim.budget = 7");
    match LeaseFile::parse(&text, Path::new("d/lease.toml")) {
        Err(LeaseError::Refused {
            file,
            line,
            column,
            key,
            found,
            allowed,
        }) => {
            assert_eq!(
                (file.as_path(), line, column),
                (Path::new("d/lease.toml"), 3, 18)
            );
            assert_eq!(key, "tenant.a.reclaim.budget");
            assert_eq!(found, "the number 7");
            assert_eq!(format!("allowed: {allowed}"), TIME);
        }
        other => panic!("not a refusal: {other:?}"),
    }
}

#[test]
fn a_file_that_cannot_be_lease_text_is_refused_when_loaded() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("lease.toml");
    let load = || LeaseFile::load(&path).expect_err("not a lease").to_string();
    let shown = path.display();

    let missing = "cannot read the lease file: No such file or directory (os error 2)";
    assert_eq!(load(), format!("{shown}: {missing}"));

    std::fs::write(&path, b"# \xc3\xa9\nx = \"\xff\"").expect("written");
    let expected = format!("{shown}:2:6: found bytes that are not UTF-8; allowed: UTF-8 text");
    assert_eq!(load(), expected);

    std::fs::write(&path, "#".repeat(LeaseFile::MAX_BYTES + 1)).expect("written");
    let expected =
        format!("{shown}:1:1: found more than 4MiB; allowed: a lease file of at most 4MiB");
    assert_eq!(load(), expected);

    let sparse = std::fs::File::create(&path).expect("made");
    sparse.set_len(1 << 42).expect("sparse");
    assert_eq!(load(), expected);

    let fifo = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    for (path, found) in [
        (Path::new("/dev/zero"), "a device"),
        (dir.path(), "a directory"),
        (&fifo, "a FIFO"),
    ] {
        let error = LeaseFile::load(path).expect_err("no lease file");
        let expected = format!(
            "{}: cannot read the lease file: found {found}; allowed: a regular file",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
    }
}
