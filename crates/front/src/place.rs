//! The places of a tenant's exchanges in the host's memory.
//!
//! How much an exchange may hold is known before it is made, and admitted for `concurrency` and `queue` of them. But a
//! client that opens no window, or does not read, leaves its response with the connection's library when the guest has
//! long finished; and a guest has its half after the client has gone. So each exchange has one of as many [places](Places), and
//! whatever is left of it has its place: the request that is under way, the guest's half, and each piece of the body. Heads and
//! trailers have none: the library keeps fields that it has sent, to compress later ones.
//!
//! When all places are taken, a new request is refused, and the connection is closed whose client has left a response
//! for longest, if that is longer than a request of the tenant may take. Whether a client has taken something is not seen before
//! that: what the kernel has of a response looks taken, and what it has no room for does not, however steadily the client reads.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The places of a tenant.
#[derive(Debug)]
pub(crate) struct Places {
    most: u64,
    /// For how long a client may leave a piece without taking all of it, while its place is wanted.
    patience: Duration,
    /// Only the I/O thread takes one; the cell gives back as well.
    taken: AtomicU64,
    left: Mutex<Left>,
}

/// The exchanges whose clients have something to take, since when, and what closes their connections. The I/O thread's
/// alone.
#[derive(Debug, Default)]
struct Left(BTreeMap<u64, (Instant, Arc<Notify>)>);

/// A place that is taken, and given back when this is dropped, on any thread and without waiting.
#[derive(Debug)]
pub(crate) struct Taken(Arc<Places>);

/// What the I/O thread has of an exchange, which has a place.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Arc<Taken>,
    exchange: u64,
    hang_up: Arc<Notify>,
}

impl Places {
    pub(crate) fn new(most: u64, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            most,
            patience,
            taken: AtomicU64::new(0),
            left: Mutex::default(),
        })
    }

    /// A place for an exchange, whose connection is closed by `hang_up`. If there is none, one may be free soon: see the
    /// [module](self).
    pub(crate) fn take(
        self: &Arc<Self>,
        exchange: u64,
        hang_up: &Arc<Notify>,
        now: Instant,
    ) -> Option<Arc<Place>> {
        if self.taken.load(Ordering::Acquire) >= self.most {
            self.left().hang_up(now, self.patience);
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(Place {
            taken: Arc::new(Taken(self.clone())),
            exchange,
            hang_up: hang_up.clone(),
        }))
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Release);
    }
}

impl Left {
    /// Closes the connection of the client that has left something for longest. O(n) in the places.
    fn hang_up(&mut self, now: Instant, patience: Duration) {
        let oldest = self.0.iter().min_by_key(|(_, (since, _))| *since);
        if let Some((&exchange, (since, hang_up))) = oldest
            && now.saturating_duration_since(*since) >= patience
        {
            hang_up.notify_one();
            self.0.remove(&exchange);
        }
    }
}

impl Place {
    /// The client has something to take from now on.
    pub(crate) fn given(&self) {
        let left = (Instant::now(), self.hang_up.clone());
        self.taken.0.left().0.insert(self.exchange, left);
    }

    /// The client has taken what there was, and waits for more.
    pub(crate) fn emptied(&self) {
        self.taken.0.left().0.remove(&self.exchange);
    }

    /// What keeps the place for the guest's half.
    pub(crate) fn kept(&self) -> Arc<Taken> {
        self.taken.clone()
    }

    /// A piece of the exchange, which has its place.
    pub(crate) fn piece(self: &Arc<Self>, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Piece {
            bytes,
            _place: self.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.emptied();
    }
}

struct Piece<B> {
    bytes: B,
    _place: Arc<Place>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Piece<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::Places;
    use std::sync::Arc;
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};
    use tokio::sync::Notify;

    const PATIENCE: Duration = Duration::from_secs(3);

    /// Whether a connection was told to close since the last call.
    fn is_told(hang_up: &Notify) -> bool {
        let mut told = std::pin::pin!(hang_up.notified());
        let mut context = Context::from_waker(Waker::noop());
        told.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn a_place_is_taken_until_nothing_is_left_of_its_exchange() {
        let (places, hang_up) = (Places::new(1, PATIENCE), Arc::new(Notify::new()));
        let take = || places.take(1, &hang_up, Instant::now());
        let place = take().expect("the first");
        let piece = place.piece(b"abc".to_vec());
        let guest = place.kept();
        assert_eq!(&piece[..], b"abc");
        drop(place);
        assert!(take().is_none());
        let part = piece.slice(1..2);
        drop(piece);
        assert!(take().is_none());
        drop(part);
        assert!(take().is_none());
        drop(guest);
        assert!(take().is_some());
    }

    #[test]
    fn the_client_that_has_left_something_for_longest_makes_room_when_its_time_is_over() {
        let places = Places::new(3, PATIENCE);
        let connections: [Arc<Notify>; 3] = Default::default();
        let told = || connections.each_ref().map(|hang_up| is_told(hang_up));
        let now = Instant::now();
        let taken: Vec<_> = (0..3_u8)
            .map(|number| places.take(number.into(), &connections[usize::from(number)], now))
            .map(|place| place.expect("three"))
            .collect();
        let want = |at| assert!(places.take(9, &connections[0], at).is_none());
        want(now + 9 * PATIENCE);
        assert_eq!(told(), [false; 3], "their guests have given nothing");
        for number in [1, 0, 2] {
            taken[number].given();
        }
        let given = Instant::now();
        want(given);
        assert_eq!(told(), [false; 3], "they have time");
        // The first has taken what there was.
        taken[1].emptied();
        want(given + PATIENCE);
        assert_eq!(told(), [true, false, false]);
        want(given + PATIENCE);
        assert_eq!(told(), [false, false, true]);
        want(given + PATIENCE);
        assert_eq!(told(), [false; 3]);
    }
}
