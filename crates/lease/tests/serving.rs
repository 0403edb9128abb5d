//! Listeners and `http` tables: what they mean, and every fault of them.

use std::path::Path;

use leasehold_lease::{Fresh, Host, LeaseFile, Restart};

const MAIN: &str = "[listener.main]\naddress = \"127.0.0.1:8080\"\n";

fn tenant(name: &str, more: &str) -> String {
    format!("[tenant.{name}]\ncomponent = \"a.wasm\"\nreclaim = {{ budget = \"1ms\" }}\n{more}\n")
}

fn parse(text: &str) -> LeaseFile {
    LeaseFile::parse(text, Path::new("etc/lease.toml")).expect(text)
}

fn message(text: &str) -> String {
    LeaseFile::parse(text, Path::new("lease.toml"))
        .expect_err(text)
        .to_string()
}

#[test]
fn a_tenant_answers_on_the_only_listener_with_the_defaults() {
    let file = parse(&format!(
        "{MAIN}{}",
        tenant("a", "http = { routes = [\"Shop.Example/api/*\"] }")
    ));
    let http = file.tenants[0].http.as_ref().expect("it answers");
    assert_eq!(http.listeners, ["main"]);
    assert_eq!(
        http.routes[0].host.as_ref().map(Host::as_str),
        Some("shop.example")
    );
    assert_eq!(
        (http.routes[0].path.as_str(), http.routes[0].below),
        ("/api", true)
    );
    assert_eq!(
        (http.fresh, http.reuse, http.concurrency, http.queue),
        (Fresh::Instance, 1, 16, 128)
    );
    assert_eq!(
        (
            http.timeout.to_string(),
            http.head.to_string(),
            http.window.to_string()
        ),
        ("30s".into(), "16KiB".into(), "64KiB".into())
    );
    let listener = &file.listeners[0];
    assert_eq!((listener.connections, listener.per_source), (1024, 128));
    assert!(listener.tls.is_empty());
    assert_eq!(file.tenants[0].restart, Restart::Never);
}

#[test]
fn every_key_is_read() {
    let text = "\
[listener.tls]
address = \"[::1]:443\"
tls = [{ host = \"shop.example\", certificate = \"shop.pem\", key = \"/keys/shop.key\" }, { certificate = \"any.pem\", key = \"any.key\" }]
connections = 10
per_source = 2
header_timeout = \"1s\"
idle_timeout = \"2s\"
";
    let http = "http = { routes = [\"/\"], listeners = [\"tls\", \"main\"], fresh = \"instance\", reuse = 7, concurrency = 3, queue = 4, timeout = \"5s\", head = \"8KiB\", window = \"32KiB\", server_timing = true }\nrestart = \"on-failure\"";
    let file = parse(&format!("{text}{MAIN}{}", tenant("a", http)));
    let listener = &file.listeners[0];
    assert_eq!(listener.tls[0].certificate, Path::new("etc/shop.pem"));
    assert_eq!(listener.tls[0].key, Path::new("/keys/shop.key"));
    assert_eq!(
        (
            listener.tls[0].host.as_ref().map(Host::as_str),
            listener.tls[1].host.as_ref()
        ),
        (Some("shop.example"), None)
    );
    assert_eq!((listener.connections, listener.per_source), (10, 2));
    assert_eq!(
        (
            listener.header_timeout.to_string(),
            listener.idle_timeout.to_string()
        ),
        ("1s".into(), "2s".into())
    );
    let http = file.tenants[0].http.as_ref().expect("it answers");
    assert_eq!(http.listeners, ["tls", "main"]);
    assert_eq!((http.reuse, http.concurrency, http.queue), (7, 3, 4));
    assert_eq!(
        (
            http.timeout.to_string(),
            http.head.to_string(),
            http.window.to_string()
        ),
        ("5s".into(), "8KiB".into(), "32KiB".into())
    );
    assert!(http.server_timing);
    assert_eq!(file.tenants[0].restart, Restart::OnFailure);
}

#[test]
fn a_fault_of_a_listener_names_its_place() {
    let rows = [
        (
            "[listener.main]\n",
            "lease.toml:1:11: listener.main.address: found nothing; allowed: an address and a port, such as \"127.0.0.1:8080\" or \"[::]:443\"",
        ),
        (
            "[listener.main]\naddress = \"localhost\"",
            "lease.toml:2:11: listener.main.address: found \"localhost\"; allowed: an address and a port, such as \"127.0.0.1:8080\" or \"[::]:443\"",
        ),
        (
            "[listener.\"a b\"]\naddress = \"1.2.3.4:5\"",
            "lease.toml:1:11: listener.\"a b\": found the name \"a b\"; allowed: 1 to 63 of A-Z a-z 0-9 - _",
        ),
        (
            "[listener.main]\nport = 1",
            "lease.toml:2:1: listener.main.port: found an unknown key; allowed: address, tls, connections, per_source, header_timeout, idle_timeout",
        ),
        (
            "[listener.main]\nconnections = 0",
            "lease.toml:2:15: listener.main.connections: found the number 0; allowed: a whole number from 1 to 100000",
        ),
        (
            "[listener.main]\nidle_timeout = \"1us\"",
            "lease.toml:2:16: listener.main.idle_timeout: found \"1us\"; allowed: a time from 1ms to 3600s",
        ),
        (
            "[listener.main]\ntls = { certificate = \"a.pem\" }",
            "lease.toml:2:1: listener.main.tls.key: found nothing; allowed: a path, not empty, without NUL",
        ),
        (
            "[listener.main]\ntls = []",
            "lease.toml:2:7: listener.main.tls: found an array; allowed: a table { certificate, key }, or an array of tables { host, certificate, key }",
        ),
        (
            "[listener.main]\ntls = [{ certificate = \"a\", key = \"b\" }, { certificate = \"a\", key = \"b\" }]",
            "lease.toml:2:42: listener.main.tls[1]: found a second certificate without a host; allowed: one certificate for each host, and one without",
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(message(text), expected);
    }
}

#[test]
fn a_fault_of_an_http_table_names_its_place() {
    let with = |http: &str| format!("{}{MAIN}", tenant("a", &format!("http = {{ {http} }}")));
    let rows = [
        (
            "",
            "lease.toml:4:1: tenant.a.http.routes: found nothing; allowed: an array of 1 to 256 routes, such as [\"shop.example/api/*\"]",
        ),
        (
            "routes = []",
            "lease.toml:4:19: tenant.a.http.routes: found 0 routes; allowed: an array of 1 to 256 routes, such as [\"shop.example/api/*\"]",
        ),
        (
            "routes = [\"api\"]",
            "lease.toml:4:20: tenant.a.http.routes[0]: found \"api\"; allowed: a host or nothing, then a path from \"/\" on, with \"/*\" at its end for all below it: \"shop.example/api/*\", \"/*\"",
        ),
        (
            "routes = [\"/\"], listeners = [\"other\"]",
            "lease.toml:4:39: tenant.a.http.listeners[0]: found \"other\"; allowed: of this file's listeners: \"main\"",
        ),
        (
            "routes = [\"/\"], fresh = \"none\"",
            "lease.toml:4:34: tenant.a.http.fresh: found \"none\"; allowed: \"instance\" or \"tenant\"",
        ),
        (
            "routes = [\"/\"], fresh = \"tenant\", reuse = 2",
            "lease.toml:4:52: tenant.a.http.reuse: found the number 2; allowed: a whole number from 1 to 1000000; 1 with fresh = \"tenant\"",
        ),
        (
            "routes = [\"/\"], window = \"1KiB\"",
            "lease.toml:4:35: tenant.a.http.window: found \"1KiB\"; allowed: a size from 4KiB to 16MiB",
        ),
        (
            "routes = [\"/\"], port = 1",
            "lease.toml:4:26: tenant.a.http.port: found an unknown key; allowed: routes, listeners, fresh, reuse, concurrency, queue, timeout, head, window, server_timing",
        ),
    ];
    for (http, expected) in rows {
        assert_eq!(message(&with(http)), expected);
    }
    let alone = tenant("a", "http = { routes = [\"/\"] }");
    assert_eq!(
        message(&alone),
        "lease.toml:4:1: tenant.a.http.listeners: found nothing; allowed: a table [listener.NAME] in this file"
    );
    let two = format!(
        "{alone}{MAIN}{}",
        MAIN.replace("main", "more").replace("8080", "8081")
    );
    assert_eq!(
        message(&two),
        "lease.toml:4:1: tenant.a.http.listeners: found nothing; allowed: of this file's listeners: \"main\", \"more\""
    );
}

#[test]
fn two_tenants_with_one_route_on_one_listener_are_both_named() {
    let route = |name: &str| tenant(name, "http = { routes = [\"/\", \"shop.example/*\"] }");
    for host in ["shop.example.", "Shop.EXAMPLE", "shop.example"] {
        let other = tenant("b", &format!("http = {{ routes = [\"{host}/*\"] }}"));
        let found = message(&format!("{MAIN}{}{other}", route("a")));
        assert!(
            found.contains("tenant.a has this one, in line 6"),
            "{found}"
        );
    }
    let other = "http = { routes = [\"SHOP.example/*\"] }";
    let text = format!("{MAIN}{}{}", route("a"), tenant("b", other));
    assert_eq!(
        message(&text),
        "lease.toml:10:20: tenant.b.http.routes[0]: found \"SHOP.example/*\"; allowed: a route that is free on the listener main: tenant.a has this one, in line 6"
    );
    // On another listener it is another one.
    let more = MAIN.replace("main", "more").replace("8080", "8081");
    let [a, b] = ["main", "more"].map(|name| {
        tenant(
            &name.replace("m", "t"),
            &format!("http = {{ routes = [\"/\"], listeners = [\"{name}\"] }}"),
        )
    });
    assert_eq!(parse(&format!("{MAIN}{more}{a}{b}")).tenants.len(), 2);
}

#[test]
fn stores_and_configurations_that_make_no_sense_are_refused() {
    let with = |line: &str| message(&tenant("a", line));
    for (line, expected) in [
        (
            "keyvalue = { file = \"a\" }",
            "keyvalue.size: found nothing; allowed: a size from 4MiB to 64GiB",
        ),
        (
            "keyvalue = { file = \"a\", size = \"1MiB\" }",
            "keyvalue.size: found \"1MiB\"; allowed: a size from 4MiB to 64GiB, such as \"64MiB\"",
        ),
        (
            "config = { a = 1 }",
            "config.a: found the number 1; allowed: a string",
        ),
    ] {
        let found = with(line);
        assert!(found.contains(&format!("tenant.a.{expected}")), "{found}");
    }
    let store = "keyvalue = { file = \"a.redb\", size = \"4MiB\" }";
    let twice = format!("{}{}", tenant("a", store), tenant("b", store));
    let found = message(&twice);
    assert!(
        found.contains("tenant.b.keyvalue.file: found \"a.redb\""),
        "{found}"
    );
}

#[test]
fn an_outgoing_table_that_makes_no_sense_is_refused_where_it_says_so() {
    let rows = [
        (
            "",
            "4:1: tenant.a.outgoing.allow: found nothing; allowed: 1 to 64 destinations, such as [\"https://api.example\"], in `allow` and `allow_private`, or addresses in `listen`",
        ),
        (
            "allow = [\"ftp://a\"]",
            "4:23: tenant.a.outgoing.allow[0]: found \"ftp://a\"; allowed: http://, https://, tcp:// or udp://, a host, an address or \"*.\" and a domain, and a port, which tcp:// and udp:// have to state: \"https://*.example\", \"tcp://db.example:5432\"",
        ),
        (
            "allow = [\"http://a\"], concurrency = 65",
            "4:50: tenant.a.outgoing.concurrency: found the number 65; allowed: a whole number from 1 to 64",
        ),
        (
            "allow = [\"http://a\"], head = \"1MiB\"",
            "4:43: tenant.a.outgoing.head: found \"1MiB\"; allowed: a size from 1KiB to 16KiB",
        ),
        (
            "allow = [\"http://a\"], deny = 1",
            "4:36: tenant.a.outgoing.deny: found an unknown key; allowed: allow, allow_private, listen, concurrency, timeout, head, window, ca",
        ),
        (
            "ca = \"own.pem\", allow = [\"http://a\"]",
            "4:19: tenant.a.outgoing.ca: found \"own.pem\"; allowed: nothing, unless a destination is https",
        ),
        (
            "listen = []",
            "4:23: tenant.a.outgoing.listen: found 0 addresses; allowed: an array of 1 to 16 addresses, such as [\"127.0.0.1:7000\"]",
        ),
        (
            "listen = [\"127.0.0.1:7\", \"localhost:7\"]",
            "4:39: tenant.a.outgoing.listen[1]: found \"localhost:7\"; allowed: an address and a port, such as \"127.0.0.1:7000\" or \"[::]:7000\", which nothing else of the file has",
        ),
        (
            "listen = [\"127.0.0.1:0\"]",
            "4:24: tenant.a.outgoing.listen[0]: found \"127.0.0.1:0\"; allowed: an address and a port, such as \"127.0.0.1:7000\" or \"[::]:7000\", which nothing else of the file has",
        ),
    ];
    for (table, expected) in rows {
        let found = message(&tenant("a", &format!("outgoing = {{ {table} }}")));
        assert!(found.ends_with(expected), "{found}");
    }
}

#[test]
fn an_address_is_that_of_one_listener_or_of_one_tenant_that_listens() {
    let listens = |name: &str| {
        tenant(
            name,
            "outgoing = { listen = [\"127.0.0.1:7\", \"[::1]:7\"] }",
        )
    };
    let listener = "[listener.main]\naddress = \"[::1]:7\"\n";
    let another = "an address and a port, such as \"127.0.0.1:7000\" or \"[::]:7000\", which nothing else of the file has";
    for (text, found) in [
        (
            listens("a") + &listens("b"),
            format!("tenant.b.outgoing.listen[0]: found \"127.0.0.1:7\"; allowed: {another}"),
        ),
        (
            listener.to_owned() + &listens("a"),
            format!("tenant.a.outgoing.listen[1]: found \"[::1]:7\"; allowed: {another}"),
        ),
        (
            listens("a") + listener,
            "listener.main.address: found \"[::1]:7\"; allowed: an address that no other listener has, and no tenant in \
             `outgoing.listen`"
                .to_owned(),
        ),
        (
            listener.to_owned() + &listener.replace("main", "other"),
            "listener.other.address: found \"[::1]:7\"".to_owned(),
        ),
    ] {
        let message = message(&text);
        assert!(message.contains(&found), "{message}");
    }
    let either = listener.replace('7', "0") + &listener.replace("main", "other").replace('7', "0");
    let text = either + &listens("a");
    let file = LeaseFile::parse(&text, Path::new("lease.toml")).expect(&text);
    let outgoing = file.tenants[0].outgoing.as_ref().expect("a table");
    assert!(outgoing.allow.is_empty());
    assert_eq!(outgoing.listen.len(), 2);
}

/// A file with a listener at this address.
fn with_listener(address: &str) -> String {
    format!("[listener.main]\naddress = \"{address}\"\n") + &tenant("a", "")
}

/// A file with a tenant that may listen at this address.
fn with_listen(address: &str) -> String {
    tenant("a", &format!("outgoing = {{ listen = [\"{address}\"] }}"))
}

/// Checks the message for the address in each of the keys that have one.
fn refused_in_both_keys(address: &str, expected: &str) {
    let keys = [
        (with_listener(address), "2:11: listener.main.address"),
        (with_listen(address), "4:24: tenant.a.outgoing.listen[0]"),
    ];
    for (text, key) in keys {
        let found = message(&text);
        let expected = format!("lease.toml:{key}: found \"{address}\" {expected}");
        assert_eq!(found, expected);
    }
}

#[test]
fn an_ipv4_mapped_address_is_refused_with_the_form_to_write() {
    for (address, plain) in [
        ("[::ffff:127.0.0.1]:7", "127.0.0.1:7"),
        ("[::ffff:7f00:1]:7", "127.0.0.1:7"),
        ("[::ffff:0:0]:7", "0.0.0.0:7"),
    ] {
        let expected = format!("(an IPv4-mapped address); allowed: the IPv4 form, \"{plain}\"");
        refused_in_both_keys(address, &expected);
    }
}

#[test]
fn an_address_that_no_host_has_for_itself_is_refused() {
    let one =
        "allowed: an address of this host and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\"";
    for (address, what) in [
        ("[ff02::1]:7", "a multicast address"),
        ("224.0.0.1:7", "a multicast address"),
        // Its IPv4 form would be refused as well.
        ("[::ffff:224.0.0.1]:7", "a multicast address"),
        ("239.255.255.255:7", "a multicast address"),
        ("255.255.255.255:7", "the broadcast address"),
        ("[fe80::1]:7", "a link-local address of IPv6"),
        ("[febf::1]:7", "a link-local address of IPv6"),
        ("[fe80::1%2]:7", "a link-local address of IPv6"),
        ("[::1%2]:7", "an address with a scope"),
    ] {
        refused_in_both_keys(address, &format!("({what}); {one}"));
    }
}

#[test]
fn an_address_that_a_host_may_have_is_accepted() {
    for address in [
        "0.0.0.0:7",
        "127.255.255.255:7",
        "169.254.1.1:7",
        "223.255.255.255:7",
        "[::]:7",
        "[::1]:7",
        "[2001:db8::1]:7",
        "[fd00::1]:7",
        "[fec0::1]:7",
    ] {
        for text in [with_listener(address), with_listen(address)] {
            let file = LeaseFile::parse(&text, Path::new("lease.toml"));
            file.expect(&text);
        }
    }
}

#[test]
fn a_listener_at_a_mapped_address_is_not_beside_the_plain_one() {
    for plain in [
        with_listen("127.0.0.1:7"),
        with_listener("127.0.0.1:7").replace("main", "plain"),
    ] {
        let mapped = "[listener.main]\naddress = \"[::ffff:127.0.0.1]:7\"\n";
        let found = message(&(plain + mapped));
        assert!(
            found.contains("listener.main.address: found \"[::ffff:127.0.0.1]:7\" (an IPv4-mapped"),
            "{found}"
        );
    }
}

/// A listener's socket at `[::]` has clients of IPv4 as well. That of a tenant has none: it is `IPV6_V6ONLY`.
#[test]
fn all_addresses_of_ipv6_are_those_of_ipv4_for_a_listener_and_not_for_a_tenant() {
    let parsed = |text: &str| LeaseFile::parse(text, Path::new("lease.toml"));
    let listen =
        |name: &str, address: &str| with_listen(address).replace(".a]", &format!(".{name}]"));
    for ipv4 in ["0.0.0.0:7", "127.0.0.1:7"] {
        let beside = listen("a", "[::]:7") + &listen("b", ipv4);
        parsed(&beside).expect(&beside);
        let beside = with_listener(ipv4) + &listen("b", "[::]:7");
        parsed(&beside).expect(&beside);
        let found = message(&(with_listener("[::]:7") + &listen("b", ipv4)));
        let refused = format!("tenant.b.outgoing.listen[0]: found \"{ipv4}\"; allowed: ");
        assert!(found.contains(&refused), "{found}");
    }
    let found = message(&(with_listener("[::1]:7") + &listen("b", "[::]:7")));
    assert!(
        found.contains("tenant.b.outgoing.listen[0]: found \"[::]:7\"; allowed: "),
        "{found}"
    );
}
