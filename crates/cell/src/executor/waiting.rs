//! Commands that wait for their share of the time.

use crate::command::Command;
use crate::control_share::ControlKind;
use std::collections::VecDeque;

/// Commands that wait for their share of the time: kills before all others, and each of them in the
/// order in which they came. A kill of a tenant whose start waits is behind that.
#[derive(Default)]
pub(super) struct Commands {
    kills: VecDeque<Command>,
    others: VecDeque<Command>,
}

impl Commands {
    pub(super) fn push(&mut self, command: Command) {
        match command {
            Command::Kill { key, .. } if !self.is_to_start(key) => self.kills.push_back(command),
            _ => self.others.push_back(command),
        }
    }

    fn is_to_start(&self, tenant: u64) -> bool {
        let is_start =
            |command: &Command| matches!(command, Command::Start { key, .. } if *key == tenant);
        self.others.iter().any(is_start)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kills.is_empty() && self.others.is_empty()
    }

    /// The kinds of the commands that come next.
    pub(super) fn next_kinds(&self) -> impl Iterator<Item = ControlKind> {
        let next = [self.kills.front(), self.others.front()];
        next.into_iter().flatten().map(Command::kind)
    }

    /// Takes the next command that `may` be obeyed now.
    pub(super) fn pop(&mut self, may: impl Fn(ControlKind) -> bool) -> Option<Command> {
        let mut queues = [&mut self.kills, &mut self.others].into_iter();
        let queue = queues.find(|queue| queue.front().is_some_and(|next| may(next.kind())));
        queue?.pop_front()
    }
}
