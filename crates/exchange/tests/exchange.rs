//! The two halves of an exchange, from both sides and from two threads.

use leasehold_exchange::{
    ClientHalf, Closed, ExchangeLimits, Failure, Fields, GuestHalf, Lane, NotTaken, Read,
    RequestHead, Responded, ResponseHead, Scheme, UnderWay, exchange,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

const LIMITS: ExchangeLimits = ExchangeLimits {
    head_bytes: 1024,
    window_bytes: 1000,
};

fn made(id: u64) -> (ClientHalf, GuestHalf) {
    let head = RequestHead {
        method: "POST".into(),
        scheme: Scheme::Https,
        authority: "shop.example".into(),
        path_with_query: "/cart?item=7".into(),
        fields: fields(&[("accept", "*/*")]),
    };
    exchange(LIMITS, head, id)
}

fn fields(of: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new(LIMITS.head_bytes);
    for (name, value) in of {
        fields.push(name, value.as_bytes()).expect("room");
    }
    fields
}

fn ok() -> ResponseHead {
    ResponseHead {
        status: 200,
        fields: fields(&[]),
    }
}

fn idle() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (count.clone(), Waker::from(count))
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until it is ready; sleeps between the polls, so that a lost wake-up hangs.
fn wait<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn bodies_of_many_windows_and_trailers_cross_both_ways_between_threads() {
    let (mut client, mut guest) = made(1);
    let body: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    // The guest echoes, in pieces that fit nothing.
    let echo = thread::spawn(move || {
        guest.respond(ok()).expect("the first");
        let mut buffer = [0; 333];
        loop {
            wait(|context| match guest.poll_readable(context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            let mut left = match guest.read(&mut buffer) {
                Read::Bytes(n) => &buffer[..n],
                Read::Nothing => continue,
                Read::End => break,
                Read::Failed => panic!("the client is there"),
            };
            while !left.is_empty() {
                wait(|context| match guest.poll_room(context.waker()) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                });
                let written = guest.write(left);
                left = &left[written..];
            }
        }
        let trailers = guest.request_trailers().cloned();
        guest.finish(trailers);
    });
    let (mut left, mut got) = (&body[..], Vec::new());
    assert_eq!(
        wait(|context| client.poll_response(context).map_ok(|head| head.status)),
        Ok(200)
    );
    let mut over = false;
    while !over {
        wait(|context| {
            let mut any = false;
            while !left.is_empty()
                && let Poll::Ready(written) = client.poll_write(context, left)
            {
                left = &left[written.expect("open")..];
                if left.is_empty() {
                    client.finish_body(Some(fields(&[("digest", "7")])));
                }
                any = true;
            }
            while !over && let Poll::Ready(read) = client.poll_read(context, 700) {
                match read.expect("no failure") {
                    Some(bytes) => got.extend(bytes),
                    None => over = true,
                }
                any = true;
            }
            match any {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
    }
    assert!(got == body);
    assert_eq!(client.trailers(), Some(&fields(&[("digest", "7")])));
    echo.join().expect("echo");
}

#[test]
fn a_window_bounds_what_each_side_is_ahead() {
    let (mut client, mut guest) = made(1);
    assert_eq!(
        client.poll_write(&mut idle(), &[1; 2000]),
        Poll::Ready(Ok(1000))
    );
    assert!(client.poll_write(&mut idle(), &[1]).is_pending());
    assert_eq!(guest.write(&[1; 2000]), 1000);
    assert_eq!(guest.room(), Some(0));
    assert!(!guest.is_flushed());
    assert_eq!(guest.read(&mut [0; 600]), Read::Bytes(600));
    assert_eq!(client.poll_room(&mut idle()), Poll::Ready(Ok(600)));
}

#[test]
fn a_client_that_goes_is_seen_by_the_guest_and_wakes_it() {
    let (client, mut guest) = made(1);
    let [(gone, first), (readable, second), (room, third)] = [(); 3].map(|()| Count::new());
    guest.set_abandon_waker(&first);
    assert!(!guest.poll_readable(&second));
    guest.write(&[0; 1000]);
    assert!(!guest.poll_room(&third));
    drop(client);
    assert_eq!((gone.get(), readable.get(), room.get()), (1, 1, 1));
    assert!(guest.is_abandoned());
    assert_eq!(guest.read(&mut [0; 8]), Read::Failed);
    assert_eq!((guest.room(), guest.write(b"lost")), (None, 0));
    guest.set_abandon_waker(&first);
    assert_eq!(gone.get(), 2, "a waker that comes late is woken at once");
}

#[test]
fn a_guest_that_goes_without_an_end_fails_its_exchange() {
    let (mut client, guest) = made(1);
    let (woken, waker) = Count::new();
    assert!(
        client
            .poll_response(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(guest);
    assert_eq!(woken.get(), 1);
    assert_eq!(
        client.poll_response(&mut idle()),
        Poll::Ready(Err(Failure::Ended))
    );

    let (mut client, mut guest) = made(2);
    guest.respond(ok()).expect("the first");
    assert!(client.poll_response(&mut idle()).is_ready());
    guest.write(b"half");
    guest.fail(Failure::Trap);
    drop(guest);
    assert_eq!(
        client.poll_read(&mut idle(), 8),
        Poll::Ready(Err(Failure::Trap))
    );
}

#[test]
fn an_exchange_has_one_response() {
    let (mut client, mut guest) = made(1);
    guest.respond(ok()).expect("the first");
    assert_eq!(
        guest.respond(ResponseHead {
            status: 500,
            ..ok()
        }),
        Err(Responded)
    );
    guest.finish(None);
    let Poll::Ready(Ok(head)) = client.poll_response(&mut idle()) else {
        panic!("there is a head")
    };
    assert_eq!(head.status, 200);
    assert_eq!(client.remaining(), Some(0));

    let (mut client, mut guest) = made(2);
    guest.finish(None);
    assert_eq!(
        client.poll_response(&mut idle()),
        Poll::Ready(Err(Failure::NoResponse))
    );
}

#[test]
fn a_guest_that_takes_no_more_of_a_body_stops_the_client() {
    let (mut client, mut guest) = made(1);
    let _ = client.poll_write(&mut idle(), &[0; 1000]);
    let (woken, waker) = Count::new();
    assert!(
        client
            .poll_write(&mut Context::from_waker(&waker), b"more")
            .is_pending()
    );
    guest.close_request();
    assert_eq!(woken.get(), 1);
    assert_eq!(
        client.poll_write(&mut idle(), b"more"),
        Poll::Ready(Err(Closed))
    );
    assert!(!guest.is_abandoned());
}

#[test]
fn a_body_that_the_client_gives_up_is_no_body_that_ended() {
    let (mut client, mut guest) = made(1);
    let _ = client.poll_write(&mut idle(), b"half");
    client.fail_body();
    assert_eq!(guest.read(&mut [0; 8]), Read::Failed);
}

#[test]
fn a_lane_is_bounded_wakes_its_tenant_and_keeps_the_order() {
    let lane = Arc::new(Lane::new(2));
    let (woken, waker) = Count::new();
    let clients: Vec<_> = (1..=3)
        .map(|id| {
            let (client, guest) = made(id);
            match lane.offer(guest) {
                Ok(()) => assert!(id <= 2),
                Err((guest, why)) => assert_eq!((guest.id(), why), (3, NotTaken::Full)),
            }
            client
        })
        .collect();
    lane.set_waker(&waker);
    assert_eq!(woken.get(), 1, "what waited already wakes");
    assert_eq!(clients[0].timing().queued, None);
    let taken = lane.take().expect("the first");
    assert_eq!(taken.id(), 1);
    assert!(clients[0].timing().queued.is_some());
    lane.offer(made(4).1).expect("room");
    assert_eq!((woken.get(), lane.len()), (2, 2));
    lane.charge(5);
    lane.charge(7);
    assert_eq!((lane.take_charged(), lane.take_charged()), (12, 0));
}

#[test]
fn what_waits_for_a_tenant_that_is_over_fails() {
    let lane = Arc::new(Lane::new(2));
    let (mut client, guest) = made(1);
    lane.offer(guest).expect("room");
    lane.close();
    assert_eq!(
        client.poll_response(&mut idle()),
        Poll::Ready(Err(Failure::Ended))
    );
    let (_client, guest) = made(2);
    assert!(matches!(lane.offer(guest), Err((_, NotTaken::Closed))));
    assert!(lane.is_closed() && lane.is_empty());
}

/// An exchange that waits in a lane, and is counted in it.
fn waiting(lane: &Arc<Lane>, id: u64) -> (ClientHalf, UnderWay) {
    let under_way = lane.enter();
    let (client, mut guest) = made(id);
    guest.is_counted_as(&under_way);
    lane.offer(guest).expect("room");
    (client, under_way)
}

#[test]
fn what_waits_for_a_life_that_is_replaced_waits_for_the_next_one() {
    let [first, second, third] = [0; 3].map(|_| Arc::new(Lane::new(3)));
    let (_client, under_way) = waiting(&first, 1);
    let taken = first.take().expect("the first");
    let waits = [2, 3].map(|id| waiting(&first, id));
    // On its way when the lane is left.
    let late = first.enter();
    let (woken, waker) = Count::new();
    second.set_waker(&waker);
    first.leave_to(&second);
    assert_eq!((first.len(), second.len(), woken.get()), (0, 2, 2));
    assert_eq!((first.under_way(), second.under_way()), (2, 2));
    assert!(Arc::ptr_eq(&under_way.lane(), &first));
    assert!(
        waits
            .iter()
            .all(|(_, waits)| Arc::ptr_eq(&waits.lane(), &second))
    );
    let (_client, mut guest) = made(4);
    guest.is_counted_as(&late);
    first.offer(guest).expect("room in the second");
    assert_eq!((first.len(), second.len(), woken.get()), (0, 3, 3));
    assert_eq!((first.under_way(), second.under_way()), (1, 3));
    let (_client, guest) = made(5);
    assert!(matches!(first.offer(guest), Err((_, NotTaken::Full))));
    // What the thread used for the first one is charged to the tenant.
    first.charge(5);
    assert_eq!((first.take_charged(), second.take_charged()), (0, 5));
    drop((taken, under_way, late));
    assert_eq!((first.under_way(), second.under_way()), (0, 2));

    // A lane that is closed fails what nothing else answers.
    second.leave_to(&third);
    first.close();
    second.close();
    assert_eq!((second.under_way(), third.under_way()), (0, 2));
    let order = [2, 3, 4].map(|_| third.take().map(|guest| guest.id()));
    assert_eq!(order, [Some(2), Some(3), Some(4)]);
}

#[test]
fn what_finds_no_room_with_the_next_life_stays_with_this_one() {
    let (first, second) = (Arc::new(Lane::new(3)), Arc::new(Lane::new(1)));
    let waits = [1, 2, 3].map(|id| waiting(&first, id));
    first.leave_to(&second);
    assert_eq!((first.len(), second.len()), (2, 1));
    assert_eq!((first.under_way(), second.under_way()), (2, 1));
    drop(first.take().expect("it answers on"));
    drop(second.take().expect("the first of all"));
    first.pass_on();
    assert_eq!((first.len(), second.len()), (0, 1));
    second.close();
    let (_client, guest) = made(4);
    assert!(matches!(first.offer(guest), Err((_, NotTaken::Closed))));
    drop(waits);
    assert_eq!((first.under_way(), second.under_way()), (0, 0));
}

#[test]
fn what_an_exchange_holds_is_known_before_it_is_made() {
    let small = ExchangeLimits {
        head_bytes: 0,
        window_bytes: 0,
    };
    assert!(small.held_bytes() < 8 * 1024);
    let held = ExchangeLimits::default().held_bytes();
    assert!((192 * 1024..208 * 1024).contains(&held), "{held}");
}
