//! The part of the processor that the controller's commands may take from reservations.
//!
//! Commands come before all tenants: a kill must not wait for whoever is to be killed. So they are
//! an interference that no admission test knows. Each of them is short, since whatever can be
//! long, starting and ending, is the tenant's own work. And of the time in which somebody with a
//! reservation wants to run, commands get one [`PART`]th at the most, and one command more.

/// Commands get one part in so many of the time that reservations want.
const PART: u64 = 20;

/// How much the commands have taken.
#[derive(Debug, Default)]
pub(crate) struct ControlShare {
    /// Until then the next command waits, ns.
    until: u64,
}

impl ControlShare {
    /// Until when a command has to wait for somebody with a reservation, if it has to.
    pub(crate) fn pause(&self, now: u64) -> Option<u64> {
        (now < self.until).then_some(self.until)
    }

    /// A command was obeyed, from one instant to another.
    pub(crate) fn obeyed(&mut self, from: u64, to: u64) {
        self.until = to + to.saturating_sub(from) * (PART - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::{ControlShare, PART};

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
                share.obeyed(now, now + command);
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
}
