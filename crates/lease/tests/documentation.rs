//! The reference page agrees with the parser.

use std::path::Path;

use leasehold_lease::LeaseFile;

const PAGE: &str = include_str!("../../../docs/reference/lease.md");

/// The first TOML block of the page.
fn example() -> &'static str {
    let (_, rest) = PAGE
        .split_once("```toml\n")
        .expect("the page has an example");
    rest.split_once("```").expect("the example ends").0
}

#[test]
fn the_example_of_the_page_is_a_lease_file() {
    let file = LeaseFile::parse(example(), Path::new("lease.toml")).expect("a lease file");
    let lease = file
        .tenant("thumbnailer")
        .expect("the tenant of the example")
        .lease;
    assert_eq!(lease.reclaim.budget.to_string(), "30ms");
    assert_eq!(lease.memory.reserve.to_string(), "16MiB");
    let cpu = lease.cpu.expect("a reservation");
    assert_eq!(
        (cpu.budget().to_string(), cpu.priority()),
        ("2ms".to_owned(), 10)
    );
}

#[test]
fn the_errors_of_the_page_are_those_of_the_parser() {
    let without_reclaim = |line: &&str| !line.starts_with("reclaim");
    let faulty = [
        example().replace("30ms", "500"),
        format!("{}network = 1\n", example()),
        example()
            .lines()
            .filter(without_reclaim)
            .collect::<Vec<_>>()
            .join("\n"),
    ];
    let message = |text: &String| {
        let error = LeaseFile::parse(text, Path::new("lease.toml")).expect_err("faulty");
        format!("{error}\n")
    };
    let messages: String = faulty.iter().map(message).collect();
    assert!(
        PAGE.contains(&format!("```text\n{messages}```")),
        "{messages}"
    );
}
