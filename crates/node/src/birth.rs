//! The birth of a life: the tenant is started in its own processor time, and the supervisor does other things meanwhile.

use crate::killers::Killable;
use crate::life::{Life, Phase};
use crate::view::{Desired, EndBound};
use leasehold_cell::{PendingStart, StartError, TenantHandle};
use leasehold_exchange::{Intake, Lane, Outbox};
use leasehold_lease::TenantSpec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The intervals between two looks at a life that is being begun: an eighth of its age, within these limits. What is
/// waited for is known an eighth later at most, and a long start costs few looks.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Why a life begins.
pub(crate) enum Cause {
    /// An operator wants it, and is told if it cannot be: then the tenant is wanted as it was before.
    Order { before: Desired },
    /// A pause after a failure is over, or there may be room: otherwise it is tried again, with what was pending.
    Revival {
        is_restart: bool,
        pending: Option<Option<Intake>>,
    },
    /// It is to take the place of an earlier one, which may be there: it is not killed by name before that.
    Change,
}

/// A life that is being begun.
pub(crate) struct Birth {
    pending: PendingStart,
    late_at: Instant,
    is_killed: bool,
    cause: Cause,
    traits: Traits,
}

/// What a life has besides its handle.
pub(crate) struct Traits {
    pub(crate) lane: Option<Arc<Lane>>,
    pub(crate) outbox: Option<Arc<Outbox>>,
    pub(crate) spec: Arc<TenantSpec>,
    pub(crate) bound: EndBound,
    pub(crate) killable: Option<Killable>,
}

/// How far a birth is.
pub(crate) enum Progress {
    Starting(Birth),
    Over(Result<Life, StartError>, Cause),
}

impl Birth {
    pub(crate) fn new(pending: PendingStart, cause: Cause, traits: Traits) -> Self {
        Self {
            pending,
            late_at: Instant::now() + PATIENCE,
            is_killed: false,
            cause,
            traits,
        }
    }

    /// Ends the start, or the life if it has begun.
    pub(crate) fn kill(&mut self) {
        self.pending.killer().kill();
        self.is_killed = true;
    }

    /// Returns when it is to be looked at again.
    pub(crate) fn next_look(&self) -> Duration {
        let (shortest, longest) = LOOKS;
        let left = self.late_at.saturating_duration_since(Instant::now());
        let age = PATIENCE.saturating_sub(left);
        (age / 8).clamp(shortest, longest)
    }

    pub(crate) const fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// Looks how far it is, and waits for at most `patience` for more. A start that takes too long is ended.
    pub(crate) fn look(self, patience: Duration) -> Progress {
        let Self {
            pending,
            late_at,
            is_killed,
            cause,
            traits,
        } = self;
        match pending.wait_for(patience) {
            Ok(started) => {
                let begun = started.map(|handle| traits.life(handle, is_killed));
                Progress::Over(begun, cause)
            }
            Err(pending) if Instant::now() >= late_at => {
                pending.killer().kill();
                Progress::Over(Err(StartError::Late(PATIENCE)), cause)
            }
            Err(pending) => Progress::Starting(Self {
                pending,
                late_at,
                is_killed,
                cause,
                traits,
            }),
        }
    }

    /// Waits until it is over.
    pub(crate) fn wait(mut self) -> Result<Life, StartError> {
        loop {
            match self.look(PATIENCE) {
                Progress::Starting(birth) => self = birth,
                Progress::Over(begun, _) => return begun,
            }
        }
    }
}

impl Traits {
    fn life(self, handle: TenantHandle, is_killed: bool) -> Life {
        Life {
            handle,
            lane: self.lane,
            outbox: self.outbox,
            spec: self.spec,
            bound: self.bound,
            phase: match is_killed {
                true => Phase::Killed,
                false => Phase::Running,
            },
            killable: self.killable,
            silent_until: None,
        }
    }
}
