//! The events of a node, in a bounded ring, each with a bounded message. A reader that is too slow is told how much it missed.

use crate::problem::cut;
use crate::view::{End, Event, EventKind};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Events that are kept.
const KEPT: usize = 1024;

/// The last events. Publishing never waits for a reader.
pub struct Events {
    kept: Mutex<VecDeque<Event>>,
    newest: watch::Sender<u64>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }
}

impl Events {
    /// Adds an event about a tenant, or about the node.
    pub fn publish(&self, kind: EventKind, tenant: Option<&str>, message: Option<String>) {
        self.add(kind, tenant, message, None);
    }

    /// Adds the end of a tenant.
    pub(crate) fn publish_end(&self, end: &End) {
        self.add(EventKind::Ended, Some(&end.tenant), None, Some(end.clone()));
    }

    fn add(
        &self,
        kind: EventKind,
        tenant: Option<&str>,
        message: Option<String>,
        end: Option<End>,
    ) {
        let mut kept = self.kept();
        let seq = kept.back().map_or(0, |event| event.seq) + 1;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Event {
            seq,
            at: Timestamp::now(),
            kind,
            tenant: tenant.map(str::to_owned),
            message: message.map(cut),
            end,
            missed: None,
        });
        self.newest.send_replace(seq);
    }

    /// Returns the number of the newest event; 0 if there was none.
    pub fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Tells when there is a newer one.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns at most `most` events after the one with number `since`, in order. If some of them are no longer
    /// kept, the first is `lagged`: it says how many are missing, under the number of the last of these.
    pub fn after(&self, since: u64, most: usize) -> Vec<Event> {
        let kept = self.kept();
        // A number that is not given yet is of an earlier process: the reader gets all events that are kept.
        let since = if since > self.newest() { 0 } else { since };
        let oldest = kept.front().map_or(1, |event| event.seq);
        let missed = oldest.saturating_sub(since + 1);
        let lagged = (missed > 0).then(|| Event {
            seq: oldest - 1,
            at: Timestamp::now(),
            kind: EventKind::Lagged,
            tenant: None,
            message: None,
            end: None,
            missed: Some(missed),
        });
        let from = kept.partition_point(|event| event.seq <= since);
        lagged
            .into_iter()
            .chain(kept.range(from..).cloned())
            .take(most)
            .collect()
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Events, KEPT};
    use crate::problem::MESSAGE;
    use crate::view::EventKind;

    #[test]
    fn no_event_keeps_a_message_that_a_program_makes_long() {
        let events = Events::default();
        let long = "ä".repeat(1 << 20);
        events.publish(EventKind::Refused, Some("a"), Some(long));
        let kept = events.after(0, 1).remove(0).message;
        assert!(kept.is_some_and(|kept| kept.ends_with('…') && kept.len() <= MESSAGE + 3));
    }

    #[test]
    fn a_slow_listener_is_told_what_it_missed_and_then_gets_the_rest_in_order() {
        let events = Events::default();
        let count = KEPT as u64 + 10;
        for _ in 0..count {
            events.publish(EventKind::Put, Some("a"), None);
        }
        let got = events.after(3, 5);
        assert_eq!(
            (got[0].kind, got[0].missed, got[0].seq),
            (EventKind::Lagged, Some(7), 10)
        );
        assert_eq!(
            got[1..].iter().map(|event| event.seq).collect::<Vec<_>>(),
            [11, 12, 13, 14]
        );
        let rest = events.after(14, usize::MAX);
        assert_eq!(
            (rest[0].seq, rest.last().map(|event| event.seq)),
            (15, Some(count))
        );
        assert!(events.after(count, 9).is_empty());
        assert_eq!(
            events.after(count + 1, 1)[0].kind,
            EventKind::Lagged,
            "of another process"
        );
    }
}
