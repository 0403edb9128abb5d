//! The part of the processor that the controller's commands may take from reservations.
//!
//! Commands come before all tenants: a kill must not wait for whoever is to be killed. So they are
//! an interference that no admission test knows. Each of them is short, since whatever can be
//! long, starting and ending, is the tenant's own work. And of the time in which a tenant with a
//! reservation wants to run, commands get one [`PART`]th at the most, and one command and one kill
//! more.
//!
//! A kill has a deadline, so that it waits for no other command: it goes before them, and the pause
//! that they have caused is not for it. Only kills delay kills. One of `n` that come at once is obeyed
//! after `PART · n` times what the longest of them takes ([`kills_within`]): how many come at once is
//! the controller's own doing, and at most the number of its tenants counts, since the kill of a
//! tenant that ends already is nothing. What kills take is taken from the part of the others.

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
    /// To call one of its functions, or that there will be no more calls.
    Call,
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
    pub const ALL: [Self; 11] = [
        Self::Start,
        Self::Go,
        Self::Kill,
        Self::Call,
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
            Self::Call => "call",
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

/// How long the last of so many kills that come at once may have to wait and take, if none takes
/// longer than `longest_ns`, while reservations want the processor.
pub(crate) const fn kills_within(kills: u64, longest_ns: u64) -> u64 {
    kills
        .saturating_sub(1)
        .saturating_mul(PART)
        .saturating_add(1)
        .saturating_mul(longest_ns)
}

/// How much the commands have taken.
#[derive(Debug, Default)]
pub(crate) struct ControlShare {
    /// Until then the next command waits, ns.
    until: u64,
    /// Until then the next kill waits, ns.
    kills_until: u64,
    uses: [ControlUse; ControlKind::ALL.len()],
}

impl ControlShare {
    /// Until when a command has to wait for a tenant with a reservation, if it has to.
    pub(crate) fn pause(&self, kind: ControlKind, now: u64) -> Option<u64> {
        let until = match kind {
            ControlKind::Kill => self.kills_until,
            _ => self.until,
        };
        (now < until).then_some(until)
    }

    /// A command was obeyed, from one instant to another.
    pub(crate) fn obeyed(&mut self, kind: ControlKind, from: u64, to: u64) {
        let taken_ns = to.saturating_sub(from);
        let pause_ns = taken_ns * (PART - 1);
        if kind == ControlKind::Kill {
            self.kills_until = to + pause_ns;
            // What was still to be waited for is not over because a kill has run meanwhile.
            self.until = self.until.max(from) + taken_ns + pause_ns;
        } else {
            self.until = to + pause_ns;
        }
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
    use super::{ControlKind, ControlShare, ControlUse, PART, kills_within};

    #[test]
    fn commands_take_their_part_and_one_command_however_many_wait() {
        for command in [1, 700, 50_000] {
            let (mut share, mut now, mut taken) = (ControlShare::default(), 1_000_000, 0);
            let end = now + 100_000_000;
            while now < end {
                if let Some(until) = share.pause(ControlKind::Go, now) {
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
        assert_eq!(ControlShare::default().pause(ControlKind::Go, 1), None);
    }

    #[test]
    fn a_kill_waits_for_kills_only_and_takes_from_the_part_of_the_others() {
        let mut share = ControlShare::default();
        share.obeyed(ControlKind::Start, 1_000, 301_000);
        assert!(share.pause(ControlKind::Go, 301_000).is_some());
        assert_eq!(share.pause(ControlKind::Kill, 301_000), None);

        // As many of both as there is time for.
        let (command, kill, begin) = (50_000, 700, 1_000_000_u64);
        let (mut share, mut now, mut taken) = (ControlShare::default(), begin, 0);
        let end = now + 100_000_000;
        while now < end {
            let next = [(ControlKind::Kill, kill), (ControlKind::Go, command)];
            let ready = next
                .into_iter()
                .find(|(kind, _)| share.pause(*kind, now).is_none());
            let Some((kind, length)) = ready else {
                let pauses = next.map(|(kind, _)| share.pause(kind, now));
                now = pauses.into_iter().flatten().min().expect("both wait");
                continue;
            };
            share.obeyed(kind, now, now + length);
            now += length;
            taken += length;
        }
        let most = (end - begin) / PART + command + kill;
        assert!(taken <= most, "{taken} of at most {most}");
    }

    #[test]
    fn kills_that_come_at_once_are_obeyed_within_their_bound() {
        for kills in [1, 2, 64] {
            let (mut share, begin, longest) = (ControlShare::default(), 5_000, 900);
            let mut now = begin;
            for _ in 0..kills {
                now = share.pause(ControlKind::Kill, now).unwrap_or(now);
                share.obeyed(ControlKind::Kill, now, now + longest);
                now += longest;
            }
            assert_eq!(now - begin, kills_within(kills, longest));
        }
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
