//! Tests of what operators change: it outlives the node, however that ends.

mod calibrated;
mod served;

use serde_json::{Value, json};
use served::{LISTENER, Node, serve, table};
use std::fs;
use std::path::Path;

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
fn a_state_that_cannot_be_used_is_an_error_that_names_it_and_nothing_is_lost() {
    let directory = tempfile::tempdir().expect("directory");
    let state = directory.path().join("desired");
    let options = ["--state", state.to_str().expect("text")];
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
