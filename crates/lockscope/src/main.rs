//! The `lockscope` program: how isolated are two workloads, and through which kernel object do
//! they meet?

mod command;

use std::process::ExitCode;

use clap::Parser;

use command::Arguments;

fn main() -> ExitCode {
    match command::run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lockscope: {}", once(&error));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes, less those that it says itself.
fn once(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::once;

    #[test]
    fn a_cause_that_an_error_says_itself_is_said_once() {
        let cause = std::io::Error::from_raw_os_error(13);
        let says = anyhow::Error::new(cause).context("a.trace: Permission denied (os error 13)");
        assert_eq!(once(&says), "a.trace: Permission denied (os error 13)");
        let other = anyhow::anyhow!("why").context("what");
        assert_eq!(once(&other), "what: why");
    }
}
