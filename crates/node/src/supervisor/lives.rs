//! The lives of tenants: what is looked after while they last, and their ends.

use super::{ENDS, Supervisor};
use crate::life::Life;
use crate::view::{Desired, EventKind};
use crate::viewed;
use crate::ward::Seen;
use jiff::Timestamp;
use leasehold_cell::{Ended, Exit};
use leasehold_lease::Restart;
use std::time::{Duration, Instant};

impl Supervisor {
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        self.look_after_discarded();
        self.look_after_succession();
        for at in 0..self.wards.len() {
            self.look_after_birth(at);
            let ward = &mut self.wards[at];
            for life in ward.life.iter_mut().chain(&mut ward.leaving) {
                life.drain(now);
                if let Some(said) = life.failed_requests_at(now) {
                    self.parts.logs.of(&life.spec.name).say(&said);
                }
            }
            let mut over = Vec::new();
            let is_over = |life: &mut Life| life.handle.wait_for(Duration::ZERO).ok().flatten();
            for place in (0..ward.leaving.len()).rev() {
                if let Some(ended) = is_over(&mut ward.leaving[place]) {
                    over.push((ward.leaving.swap_remove(place), ended, false));
                }
            }
            if let Some(ended) = ward.life.as_mut().and_then(is_over)
                && let Some(life) = ward.life.take()
            {
                over.push((life, ended, true));
            }
            for (life, ended, is_last) in over {
                self.over(at, &life, ended, is_last);
            }
            self.wards[at].tell_end();
            self.revive(at, now);
        }
        let before = self.wards.len();
        for ward in self
            .wards
            .iter()
            .filter(|ward| ward.is_deleted && ward.is_gone())
        {
            self.parts
                .events
                .publish(EventKind::Deleted, Some(ward.name()), None);
            self.parts.logs.forget(ward.name());
            self.parts.requests.forget(ward.name());
            self.counted_ends.forget(ward.name());
        }
        self.wards
            .retain(|ward| !(ward.is_deleted && ward.is_gone()));
        if before != self.wards.len() {
            self.snapshot = None;
            self.admit_the_rest();
        }
    }

    /// Reports the end of a life, and starts the tenant again if its lease says so.
    pub(super) fn over(&mut self, at: usize, life: &Life, ended: Ended, is_last: bool) {
        let end = viewed::end(&life.spec.name, &ended, life.bound, &life.spec.lease);
        self.lives_over += 1;
        let log = self.parts.logs.of(&end.tenant);
        log.finish();
        if let Some(said) = life.failed_requests() {
            log.say(&said);
        }
        if let Some((what, message)) = ended.exit.reason() {
            log.say(&format!("{what}{message}"));
        }
        self.parts.events.publish_end(&end);
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(end.clone());
        self.counted_ends.add(&end);
        let ward = &mut self.wards[at];
        // Also that of a life that was replaced, though another one goes on.
        ward.last_end = Some(end);
        if !is_last {
            return;
        }
        if let (Some(site), None) = (&ward.site, &ward.pending) {
            site.set_lane(None);
        }
        let failed = !matches!(ended.exit, Exit::Killed | Exit::Code(0));
        ward.ended = Some(ended);
        ward.since = Timestamp::now();
        ward.seen = Seen::default();
        let again = ward.desired == Desired::Running && ward.spec.restart == Restart::OnFailure;
        if failed && again && !self.is_draining {
            let pause = ward.restarts.plan(Instant::now(), ward.period());
            let said = format!("started again in {:.1} s", pause.as_secs_f64());
            let state = ward
                .ended
                .as_ref()
                .map_or("", |ended| exit_state(&ended.exit));
            log.say(&format!("{state}; {said}"));
            self.parts.events.publish(
                EventKind::Restarting,
                Some(ward.spec.name.as_str()),
                Some(said),
            );
        }
    }
}

const fn exit_state(exit: &Exit) -> &'static str {
    match exit {
        Exit::Code(_) => "exited",
        Exit::Trap(_) => "trapped",
        Exit::Lease(_) => "out of lease",
        Exit::Memory(_) => "memory failed",
        Exit::Killed => "killed",
    }
}
