//! The part of the processor that the controller's commands may take from reservations.
//!
//! Commands come before all tenants: a kill must not wait for whoever is to be killed. So they are
//! an interference that no admission test knows. Each of them is short, since whatever can be
//! long, starting and ending, is the tenant's own work. And of the time in which somebody with a
//! reservation wants to run, commands get one [`PART`]th at the most, and one command more.

/// Commands get one part in so many of the time that reservations want.
const PART: u64 = 20;

/// What a controller asks a cell for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlKind {
    /// To admit a tenant.
    Start,
    /// To let it run.
    Go,
    /// To end it.
    Kill,
    /// What it was charged for.
    Statement,
    /// What tenants have got of the processor.
    Processors,
    /// How a tenant uses its memory.
    Memory,
    /// To connect two tenants.
    Connect,
    /// What commands have taken.
    Control,
    /// What was seen of the host steps.
    Steps,
    /// To end all tenants. Nobody is left whom it could keep waiting.
    Shutdown,
}

impl ControlKind {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 10] = [
        Self::Start,
        Self::Go,
        Self::Kill,
        Self::Statement,
        Self::Processors,
        Self::Memory,
        Self::Connect,
        Self::Control,
        Self::Steps,
        Self::Shutdown,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Go => "go",
            Self::Kill => "kill",
            Self::Statement => "statement",
            Self::Processors => "processors",
            Self::Memory => "memory",
            Self::Connect => "connect",
            Self::Control => "control",
            Self::Steps => "steps",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What the commands of one kind have taken of a cell's thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ControlUse {
    /// How many there were.
    pub commands: u64,
    /// All together, ns of wall time.
    pub taken_ns: u64,
    /// The longest, ns of wall time: for so long a reservation can wait for a single command.
    pub longest_ns: u64,
}

/// How much the commands have taken.
#[derive(Debug, Default)]
pub(crate) struct ControlShare {
    /// Until then the next command waits, ns.
    until: u64,
    uses: [ControlUse; ControlKind::ALL.len()],
}

impl ControlShare {
    /// Until when a command has to wait for somebody with a reservation, if it has to.
    pub(crate) fn pause(&self, now: u64) -> Option<u64> {
        (now < self.until).then_some(self.until)
    }

    /// A command was obeyed, from one instant to another.
    pub(crate) fn obeyed(&mut self, kind: ControlKind, from: u64, to: u64) {
        let taken_ns = to.saturating_sub(from);
        self.until = to + taken_ns * (PART - 1);
        let uses = &mut self.uses[kind as usize];
        uses.commands += 1;
        uses.taken_ns += taken_ns;
        uses.longest_ns = uses.longest_ns.max(taken_ns);
    }

    /// What each kind has taken so far, in the order of [`ControlKind::ALL`].
    pub(crate) fn uses(&self) -> impl Iterator<Item = (ControlKind, ControlUse)> {
        ControlKind::ALL.into_iter().zip(self.uses)
    }
}

#[cfg(test)]
mod tests {
    use super::{ControlKind, ControlShare, ControlUse, PART};

    #[test]
    fn commands_take_their_part_and_one_command_however_many_wait() {
        for command in [1, 700, 50_000] {
            let (mut share, mut now, mut taken) = (ControlShare::default(), 1_000_000, 0);
            let end = now + 100_000_000;
            while now < end {
                if let Some(until) = share.pause(now) {
                    now = until;
                    continue;
                }
                share.obeyed(ControlKind::Go, now, now + command);
                now += command;
                taken += command;
            }
            let most = (end - 1_000_000) / PART + command;
            assert!(taken <= most, "{taken} of at most {most}");
        }
    }

    #[test]
    fn the_first_command_does_not_wait() {
        assert_eq!(ControlShare::default().pause(1), None);
    }

    #[test]
    fn the_longest_command_of_a_kind_is_known() {
        let mut share = ControlShare::default();
        for (kind, taken) in [(0, 5), (0, 9), (2, 7)] {
            share.obeyed(ControlKind::ALL[kind], 100, 100 + taken);
        }
        let uses: Vec<_> = share.uses().filter(|(_, uses)| uses.commands > 0).collect();
        let uses_of = |commands, taken_ns, longest_ns| ControlUse {
            commands,
            taken_ns,
            longest_ns,
        };
        let expected = [
            (ControlKind::Start, uses_of(2, 14, 9)),
            (ControlKind::Kill, uses_of(1, 7, 7)),
        ];
        assert_eq!(uses, expected);
    }
}
