//! Attacks in processes of their own.

use crate::known::Known;
use crate::plan::Plan;
use crate::score::Observation;
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// The longest time that a process may take for an attack before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome of an attack.
pub type Verdict = Result<Observation>;

/// Plays each attack in a process of its own: this program, started with arguments that make it
/// [`play`](crate::play) the plan on its standard input and print what it observed.
#[derive(Debug, Clone)]
pub struct Player {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Player {
    /// Plays an attack.
    ///
    /// # Errors
    /// When the process cannot be started. One that crashes or hangs is an observation.
    pub fn play(&self, plan: &Plan) -> Verdict {
        self.run(&[], &serde_json::to_string(plan)?)
    }

    /// Plays an attack that is known, likewise.
    ///
    /// # Errors
    /// As those of [`play`](Self::play).
    pub fn play_known(&self, known: &Known) -> Verdict {
        self.run(&["--known", known.name], "")
    }

    /// Runs the process with more arguments and this input.
    fn run(&self, more: &[&str], text: &str) -> Verdict {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // An interrupt from the keyboard ends the search, and is nothing that the attack did.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        if let Some(mut input) = child.stdin.take() {
            // A process that has ended already says so by its status.
            let _ = input.write_all(text.as_bytes());
        }
        let mut output = child.stdout.take().context("its output")?;
        let (sender, heard) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            let read = output.read_to_string(&mut text);
            // After a timeout the receiver is gone.
            let _ = sender.send(read.map(|_| text));
        });
        let Ok(text) = heard.recv_timeout(PATIENCE) else {
            child.kill()?;
            child.wait()?;
            return Ok(broken(format!("said nothing for {PATIENCE:?}")));
        };
        let status = child.wait()?;
        match serde_json::from_str(&text?) {
            Ok(observation) if status.success() => Ok(observation),
            _ => Ok(broken(ended(status))),
        }
    }
}

fn broken(how: String) -> Observation {
    Observation {
        broken: Some(how),
        ..Observation::default()
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}
