//! The part of the processor that the controller's commands may take from reservations.
//!
//! Commands precede all tenants, because a kill must not wait for its target. They are therefore an
//! interference that no admission test knows. Each command is short, since starting and ending,
//! which can be long, are the tenant's own work. While a tenant with a reservation is ready,
//! commands get one [`PART`]th of the time at most, plus one command and one kill.
//!
//! A kill has a deadline: it precedes all other commands, and their pauses do not delay it. Only
//! kills delay kills. Each of `n` simultaneous kills is obeyed after at most `PART · n` times the
//! longest of them ([`kills_within`]). The controller determines `n`; it is at most the number of
//! its tenants, since the kill of a tenant that ends already does nothing. The time of kills counts
//! against the part of the other commands.

/// While reservations are ready, commands get one in `PART` of the time.
const PART: u64 = 20;

/// The kinds of commands from a controller to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlKind {
    /// To admit a tenant.
    Start,
    /// To let it run.
    Go,
    /// To end it.
    Kill,
    /// To call one of its functions, or to announce that no more calls follow.
    Call,
    /// To report what it was charged for.
    Statement,
    /// To report the processor time that tenants have received.
    Processors,
    /// To report how a tenant uses its memory.
    Memory,
    /// To connect two tenants.
    Connect,
    /// To report the time that commands have taken.
    Control,
    /// To report the observed host steps.
    Steps,
    /// To end all tenants. No tenant remains that it could delay.
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
    /// The longest, ns of wall time: a single command can delay a reservation by as much.
    pub longest_ns: u64,
}

/// Returns the time within which the last of `kills` simultaneous kills is obeyed while
/// reservations are ready, if none takes longer than `longest_ns`.
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
    /// The instant before which no further command is obeyed, ns.
    until: u64,
    /// The instant before which no further kill is obeyed, ns.
    kills_until: u64,
    uses: [ControlUse; ControlKind::ALL.len()],
}

impl ControlShare {
    /// Returns the instant until which a command must wait for a tenant with a reservation, if it
    /// must.
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
            // A kill that ran meanwhile does not shorten the remaining pause.
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
