//! Tests of what operators change: it outlives the node, however that ends.

mod calibrated;
mod served;

use serde_json::{Value, json};
use served::{LISTENER, Node, serve, table};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use tempfile::TempDir;

fn leases() -> String {
    LISTENER.to_owned() + &table("shop", "/*", "") + &table("cart", "/env", "")
}

/// The tenants of a node with what is wanted of each, their routes and their budgets.
fn wanted(node: &Node) -> Vec<Value> {
    let tenants = node.json(&["ps"]);
    let of = |it: &Value| {
        json!([
            it["name"],
            it["desired"],
            it["http"]["routes"],
            it["reclaim"]["budget_ns"]
        ])
    };
    let mut tenants: Vec<Value> = tenants["tenants"]
        .as_array()
        .expect("tenants")
        .iter()
        .map(of)
        .collect();
    tenants.sort_by_key(ToString::to_string);
    tenants
}

fn desired(directory: &Path) -> std::path::PathBuf {
    directory.join("desired/desired.json")
}

#[test]
fn what_operators_changed_is_there_again_after_the_node_was_killed() {
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path().join("desired");
    let options = [
        "--state",
        state.to_str().expect("text"),
        "--confinement",
        "trap",
    ];
    let node = Node::start_in(directory, &leases(), &options);
    let mine = table("mine", "/headers", "");
    assert_eq!(node.put("mine", &mine).0, Some(0));
    assert_eq!(node.put("brief", &table("brief", "/echo", "")).0, Some(0));
    let shop = table("shop", "/*", "").replace("200ms", "250ms");
    assert_eq!(node.put("shop", &shop).0, Some(0));
    node.done(&["replace", "mine"]);
    node.json(&["kill", "mine"]);
    for name in ["cart", "brief"] {
        node.done(&["delete", name]);
    }
    let before = wanted(&node);
    let node = node.again(&options);
    assert_eq!(wanted(&node), before);
    assert_eq!(node.get("/headers").0, 503, "it was stopped");
    assert!(
        node.get("/env").1.contains("NAME=shop"),
        "the cart was deleted"
    );
    // Also what is changed back.
    node.done(&["start", "mine"]);
    assert_eq!(node.get("/headers").0, 200);
    let node = node.again(&options);
    assert_eq!(node.get("/headers").0, 200);
    // A reload returns to the file.
    let changes = node.json(&["reload"]);
    assert_eq!(changes["removed"], json!(["mine"]), "{changes}");
    assert_eq!(changes["replaced"], json!(["shop"]), "{changes}");
    assert_eq!(changes["added"], json!(["cart"]), "{changes}");
    let node = node.again(&options);
    let names: Vec<Value> = wanted(&node)
        .iter()
        .map(|tenant| tenant[0].clone())
        .collect();
    assert_eq!(names, ["cart", "shop"]);
    let (code, text) = node.end();
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn tables_that_the_next_start_could_not_read_are_not_put() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let node = Node::start_in(directory, &leases(), &options);
    // Each of these bytes takes two in the file.
    let comment = format!("\n# {}\n", "\\".repeat(4_000_000));
    let put = |name: &str| {
        let route = format!("/{name}");
        node.put(name, &(table(name, &route, "") + &comment))
    };
    for name in ["a", "b", "c", "d"] {
        assert_eq!(put(name).0, Some(0), "{name}");
    }
    let (code, _, said) = put("e");
    assert_eq!(code, Some(77), "{said}");
    assert!(
        said.contains("tenant.e") && said.contains("allowed: 16777216"),
        "{said}"
    );
    // The same one again takes the place of itself.
    assert_eq!(put("d").0, Some(0));
    node.json(&["kill", "a"]);
    let before = wanted(&node);
    let node = node.again(&options);
    assert_eq!(wanted(&node), before);
    let (code, text) = node.end();
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn an_order_is_answered_when_it_outlives_the_node_whichever_it_is() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let mut node = Node::start_in(directory, &leases(), &options);
    let running = wanted(&node);
    for order in ["start", "replace"] {
        node.json(&["kill", "shop"]);
        assert_ne!(wanted(&node), running);
        node.done(&[order, "shop"]);
        node = node.again(&options);
        assert_eq!(wanted(&node), running, "{order}");
    }
}

#[test]
fn a_state_that_cannot_be_used_is_an_error_that_names_it_and_nothing_is_lost() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let mut node = Node::start_in(directory, &leases(), &options);
    assert_eq!(node.put("mine", &table("mine", "/headers", "")).0, Some(0));
    let twice = serve(node.path("").as_path(), &options)
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert_ne!(twice.status.code(), Some(0));
    assert!(error.contains("another node uses it"), "{error}");
    let directory = node.killed();
    let refused = || {
        let output = serve(directory.path(), &options).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{error}");
        assert!(error.contains("desired.json"), "{error}");
        error
    };
    // It is whole, and does not fit to the lease file any more: it stays where it is.
    let kept = fs::read_to_string(desired(directory.path())).expect("kept");
    let other = leases().replace("/env", "/headers");
    fs::write(directory.path().join("leases.toml"), &other).expect("written");
    let error = refused();
    assert!(error.contains("a route that is free"), "{error}");
    assert_eq!(
        fs::read_to_string(desired(directory.path())).expect("kept"),
        kept
    );
    // The program of a tenant that was put is gone: the table is not in the lease file.
    fs::write(directory.path().join("leases.toml"), leases()).expect("written");
    fs::write(
        desired(directory.path()),
        kept.replace("web.wasm", "gone.wasm"),
    )
    .expect("written");
    let output = serve(directory.path(), &options).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(66), "{error}");
    let said = "desired.json: tenant.mine: no such program: ";
    assert!(error.contains(said), "{error}");
    // It is damaged: it is moved aside, and the next start does without it.
    fs::write(desired(directory.path()), &kept[..kept.len() / 2]).expect("written");
    let error = refused();
    assert!(error.contains("a damaged file"), "{error}");
    let aside = directory.path().join("desired/desired.json.refused-1");
    assert_eq!(
        fs::read_to_string(aside).expect("kept"),
        kept[..kept.len() / 2]
    );
    let node = Node::start_in(directory, &leases(), &options);
    let names: Vec<Value> = wanted(&node)
        .iter()
        .map(|tenant| tenant[0].clone())
        .collect();
    assert_eq!(names, ["cart", "shop"]);
}

#[test]
fn a_deleted_tenant_comes_back_by_a_reload_after_a_restart_with_all_that_it_had() {
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path().join("desired");
    fs::create_dir(directory.path().join("files")).expect("made");
    let options = ["--state", state.to_str().expect("text")];
    let more = "keyvalue = { file = \"cart.redb\", size = \"8MiB\" }\n\
                dirs = [{ host = \"files\", guest = \"/\", write = true }]\n\
                outgoing = { allow = [\"http://127.0.0.1:1\"] }\n";
    let shop = LISTENER.to_owned() + &table("shop", "/*", "");
    let node = Node::start_in(
        directory,
        &(shop.clone() + &table("cart", "/env", more)),
        &options,
    );
    node.done(&["delete", "cart"]);
    let node = node.again(&options);
    assert!(node.get("/env").1.contains("NAME=shop"));
    let changes = node.json(&["reload"]);
    assert_eq!(changes["added"], json!(["cart"]), "{changes}");
    assert!(node.get("/env").1.contains("NAME=cart"));
    // What an operator took away with the tenant is no reason not to start.
    node.done(&["delete", "cart"]);
    fs::remove_dir_all(node.path("files")).expect("removed");
    let node = node.again(&options);
    assert!(node.get("/env").1.contains("NAME=shop"));
    let refused = node.command(&["reload"]);
    assert_eq!(refused.0, Some(78), "{}", refused.2);
    node.leases(&shop);
    node.done(&["reload"]);
    assert_eq!(node.end().0, Some(0));
}

/// An address of this host at which nothing listens.
fn free_address() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    socket.local_addr().expect("an address")
}

/// A tenant that may listen there, if there is an address.
fn listens(name: &str, address: Option<SocketAddr>) -> String {
    let more = address.map(|address| format!("outgoing = {{ listen = [\"{address}\"] }}"));
    table(name, &format!("/{name}"), &more.unwrap_or_default())
}

/// A directory for a node, and where in it the node keeps its state.
fn place() -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path().join("desired").display().to_string();
    (directory, state)
}

/// The leases of `shop` and of tenants that may listen.
fn leases_of(tenants: &[(&str, SocketAddr)]) -> String {
    let tenants = tenants
        .iter()
        .map(|(name, address)| listens(name, Some(*address)));
    LISTENER.to_owned() + &table("shop", "/*", "") + &tenants.collect::<String>()
}

#[test]
fn the_address_of_a_deleted_tenant_is_that_of_another_one_after_a_restart() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let address = free_address();
    let node = Node::start_in(directory, &leases_of(&[("cart", address)]), &options);
    node.done(&["delete", "cart"]);
    let other = listens("other", Some(address));
    assert_eq!(node.put("other", &other).0, Some(0));
    let before = wanted(&node);
    let node = node.again(&options);
    assert_eq!(wanted(&node), before);
    // A reload gives it back.
    let changes = node.json(&["reload"]);
    assert_eq!(changes["added"], json!(["cart"]), "{changes}");
    assert_eq!(changes["removed"], json!(["other"]), "{changes}");
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn the_address_that_a_tenant_gave_up_is_that_of_another_one_after_a_restart() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let address = free_address();
    let node = Node::start_in(directory, &leases_of(&[("cart", address)]), &options);
    assert_eq!(node.put("cart", &listens("cart", None)).0, Some(0));
    let other = listens("other", Some(address));
    assert_eq!(node.put("other", &other).0, Some(0));
    let before = wanted(&node);
    let node = node.again(&options);
    assert_eq!(wanted(&node), before);
}

#[test]
fn two_tenants_that_exchanged_their_addresses_have_those_after_a_restart() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let (one, another) = (free_address(), free_address());
    let leases = leases_of(&[("a", one), ("b", another)]);
    let node = Node::start_in(directory, &leases, &options);
    for (name, address) in [("a", None), ("b", Some(one)), ("a", Some(another))] {
        assert_eq!(node.put(name, &listens(name, address)).0, Some(0));
    }
    let before = wanted(&node);
    let node = node.again(&options);
    assert_eq!(wanted(&node), before);
    let changes = node.json(&["reload"]);
    assert_eq!(changes["replaced"], json!(["a", "b"]), "{changes}");
}

#[test]
fn a_port_that_another_program_took_from_a_deleted_tenant_is_missed_by_the_reload_alone() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let address = free_address();
    let leases = leases_of(&[("cart", address)]);
    let mut node = Node::start_in(directory, &leases, &options);
    node.done(&["delete", "cart"]);
    let directory = node.killed();
    let program = TcpListener::bind(address).expect("free");
    let node = Node::start_in(directory, &leases, &options);
    let (code, _, error) = node.command(&["reload"]);
    assert_eq!(code, Some(78), "{error}");
    let said = format!("tenant.cart.outgoing.listen: found {address}");
    assert!(error.contains(&said), "{error}");
    drop(program);
    let node = node.again(&options);
    let changes = node.json(&["reload"]);
    assert_eq!(changes["added"], json!(["cart"]), "{changes}");
}

/// A node whose tenant `cart` has this in its table is started again after that was deleted and a file of it was damaged. Returns
/// what the reload says that would bring it back.
fn damaged(more: &str, file: &str, contents: &str) -> String {
    let (directory, state) = place();
    let options = ["--state", &state];
    let certificate = rcgen::generate_simple_self_signed(["a.example".to_owned()]);
    let certificate = certificate.expect("a certificate").cert.pem();
    fs::write(directory.path().join("ca.pem"), certificate).expect("written");
    let leases = LISTENER.to_owned() + &table("shop", "/*", "") + &table("cart", "/env", more);
    let mut node = Node::start_in(directory, &leases, &options);
    node.done(&["delete", "cart"]);
    let directory = node.killed();
    fs::write(directory.path().join(file), contents).expect("written");
    let node = Node::start_in(directory, &leases, &options);
    assert!(node.get("/env").1.contains("NAME=shop"));
    let (code, _, error) = node.command(&["reload"]);
    assert_eq!(code, Some(78), "{error}");
    let (code, errors) = node.end();
    assert_eq!(code, Some(0), "{errors}");
    error
}

#[test]
fn the_damaged_store_of_a_deleted_tenant_is_missed_by_the_reload_alone() {
    let more = "keyvalue = { file = \"cart.redb\", size = \"8MiB\" }";
    let error = damaged(more, "cart.redb", &"x".repeat(4096));
    assert!(error.contains("tenant.cart.keyvalue.file"), "{error}");
}

#[test]
fn the_damaged_certificates_of_a_deleted_tenant_are_missed_by_the_reload_alone() {
    let more = "outgoing = { allow = [\"https://a.example:4433\"], ca = \"ca.pem\" }";
    let error = damaged(more, "ca.pem", "x");
    assert!(error.contains("tenant.cart.outgoing."), "{error}");
}

#[test]
fn tenants_that_conflict_after_the_changes_are_refused_with_the_file_that_has_them() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let address = free_address();
    let mut node = Node::start_in(directory, &leases_of(&[("cart", address)]), &options);
    node.done(&["delete", "cart"]);
    let put = listens("put", Some(address));
    assert_eq!(node.put("put", &put).0, Some(0));
    let directory = node.killed();
    let edited = leases_of(&[("edited", address)]);
    fs::write(directory.path().join("leases.toml"), edited).expect("written");
    let output = serve(directory.path(), &options).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{error}");
    let said = "desired.json: tenant.put.outgoing.listen: found";
    assert!(error.contains(said), "{error}");
    assert!(desired(directory.path()).exists());
}

#[test]
fn a_conflict_in_the_lease_file_that_the_changes_resolve_is_none() {
    let (directory, state) = place();
    let options = ["--state", &state];
    let address = free_address();
    let mut node = Node::start_in(directory, &leases_of(&[("cart", address)]), &options);
    node.done(&["delete", "cart"]);
    let directory = node.killed();
    let edited = leases_of(&[("cart", address), ("edited", address)]);
    fs::write(directory.path().join("leases.toml"), &edited).expect("written");
    let output = serve(directory.path(), &[]).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{error}");
    let node = Node::start_in(directory, &edited, &options);
    let names = |node: &Node| -> Vec<Value> {
        let tenants = wanted(node);
        tenants.iter().map(|tenant| tenant[0].clone()).collect()
    };
    assert_eq!(names(&node), ["edited", "shop"]);
    assert_eq!(node.command(&["reload"]).0, Some(78));
    // A change that is made now leaves the deletion as it is.
    node.json(&["kill", "edited"]);
    let node = node.again(&options);
    assert_eq!(names(&node), ["edited", "shop"]);
}
