//! Everything that states a part of the interface in its own way states the same.

use std::fs;
use std::path::{Path, PathBuf};

use leasehold_abi::{Errno, FUNCTIONS};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text between the first `from` and the next `to`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).expect("the beginning");
    rest.split_once(to).expect("the end").0
}

#[test]
fn the_guest_library_declares_functions_of_the_interface_only() {
    let source = read("guests/kernel/src/abi.rs");
    let declared: Vec<&str> = source
        .split("fn ")
        .skip(1)
        .map(|rest| rest.split('(').next().expect("a name"))
        .collect();
    assert!(declared.len() > 20, "{declared:?}");
    for name in declared {
        assert!(FUNCTIONS.contains(&name), "{name}");
    }
}

#[test]
fn neither_side_defines_errors_or_rights_of_its_own() {
    for folder in ["crates/kernel/src", "guests/kernel/src"] {
        for file in fs::read_dir(root().join(folder)).expect("a folder") {
            let path = file.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&path).expect("a source file");
                for own in ["enum Errno", "struct Rights", "struct Received"] {
                    assert!(!source.contains(own), "{own} in {}", path.display());
                }
            }
        }
    }
}

#[test]
fn the_interface_of_components_has_the_errors_in_the_order_of_their_numbers() {
    let wit = read("wit/kernel.wit");
    let names: Vec<&str> = between(&wit, "enum errno {", "}")
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(names, Errno::ALL.map(Errno::name));
}

#[test]
fn the_page_of_the_book_has_every_function_and_every_error() {
    let page = read("docs/guest-abi.md");
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    assert_eq!(rows, FUNCTIONS);
    let errors = between(&page, "of errors:", ". Rights").replace('\n', " ");
    let expected = Errno::ALL.map(|errno| format!("{} {}", errno.name(), errno.number()));
    assert_eq!(errors.trim(), expected.join(", "));
}
