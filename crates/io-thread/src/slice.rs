//! The slice of one poll: what it takes from its socket and gives to it before others have their turn.
//!
//! A protocol is handled as long as its socket has bytes, and what has no content costs few: a frame of HTTP/2 9 of
//! them, an informational head of HTTP/1.1 25.
//! So a stream gives no more bytes once the poll has used its slice, by their number or by its time.
//! It says then that there are none yet, and wakes its task after the system was asked what else is
//! to be done. The rounds decide which task goes on.

use crate::meter;
use pin_project_lite::pin_project;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of one read, between two looks at the clock: 910 frames without content.
const READ_MOST: usize = 8 * 1024;
/// Bytes that a poll reads, and writes, before it ends.
const SLICE_BYTES: usize = 64 * 1024;
/// The time after its first read in which a poll begins others.
const SLICE_TIME: Duration = Duration::from_micros(200);

/// What the poll that is under way has used of its slice.
#[derive(Debug, Default)]
struct Slice {
    /// The poll, by its number on this thread.
    poll: u64,
    /// Its first read.
    began: Option<Instant>,
    read: usize,
    written: usize,
}

impl Slice {
    /// That of this poll.
    fn of(&mut self, poll: u64) -> &mut Self {
        if self.poll != poll {
            *self = Self {
                poll,
                ..Self::default()
            };
        }
        self
    }

    /// How many bytes the next read may give; none once the slice is used.
    fn readable(&mut self, now: Instant) -> usize {
        let began = *self.began.get_or_insert(now);
        match now.duration_since(began) < SLICE_TIME {
            true => SLICE_BYTES.saturating_sub(self.read).min(READ_MOST),
            false => 0,
        }
    }

    /// Whether another write may begin. It may be longer than what is left: the socket's buffer bounds
    /// it.
    const fn is_writable(&self) -> bool {
        self.written < SLICE_BYTES
    }
}

/// Wakes the task of this context once the system was asked what else is to be done.
fn later<T>(context: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(tokio::task::yield_now()).poll(context);
    Poll::Pending
}

pin_project! {
    /// A stream that gives and takes a slice in each poll of its [task](crate::Metered).
    pub struct Sliced<S> {
        #[pin]
        stream: S,
        slice: Slice,
    }
}

impl<S> Sliced<S> {
    /// Slices this stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            slice: Slice::default(),
        }
    }

    /// The stream.
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead> AsyncRead for Sliced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let slice = this.slice.of(meter::poll());
        let most = slice.readable(Instant::now());
        if most == 0 {
            return later(context);
        }
        let before = buffer.filled().len();
        let result = if buffer.remaining() <= most {
            this.stream.poll_read(context, buffer)
        } else {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
            let result = this.stream.poll_read(context, &mut part);
            let read = part.filled().len();
            buffer.advance(read);
            result
        };
        slice.read += buffer.filled().len() - before;
        result
    }
}

impl<S: AsyncWrite> Sliced<S> {
    /// Writes, if the slice is not used.
    fn write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let slice = this.slice.of(meter::poll());
        if !slice.is_writable() {
            return later(context);
        }
        let result = write(this.stream, context);
        if let Poll::Ready(Ok(written)) = result {
            slice.written += written;
        }
        result
    }
}

impl<S: AsyncWrite> AsyncWrite for Sliced<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream, context| {
            stream.poll_write_vectored(context, buffers)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::{READ_MOST, SLICE_BYTES, SLICE_TIME, Slice, Sliced};
    use crate::{Metered, Share};
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::io;
    use std::pin::{Pin, pin};
    use std::rc::Rc;
    use std::task::{Context, Poll};
    use std::time::Instant;
    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

    /// Runs the tasks of a connection on this thread.
    #[derive(Clone, Copy)]
    struct LocalExecutor;

    impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
        fn execute(&self, task: F) {
            let task = async move {
                task.await;
            };
            tokio::task::spawn_local(Metered::new(Rc::<Share>::default(), task));
        }
    }

    /// A socket that has all of these bytes at once, and takes all that is written.
    struct Flood {
        bytes: Vec<u8>,
        at: Rc<Cell<usize>>,
        written: Rc<Cell<usize>>,
    }

    impl AsyncRead for Flood {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let at = self.at.get();
            let most = buffer.remaining().min(self.bytes.len() - at);
            if most == 0 {
                return Poll::Pending;
            }
            buffer.put_slice(&self.bytes[at..at + most]);
            self.at.set(at + most);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Flood {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.written.set(self.written.get() + bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    const FLOOD_BYTES: usize = 1024 * 1024;

    fn flood(begin: &[u8], repeated: &[u8]) -> (Flood, Rc<Cell<usize>>, Rc<Cell<usize>>) {
        let mut bytes = begin.to_vec();
        while bytes.len() < FLOOD_BYTES {
            bytes.extend(repeated);
        }
        let (at, written) = (Rc::<Cell<usize>>::default(), Rc::<Cell<usize>>::default());
        let flood = Flood {
            bytes,
            at: at.clone(),
            written: written.clone(),
        };
        (flood, at, written)
    }

    fn on_a_thread(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), test);
    }

    /// Polls a task until `over`, and returns the most that a poll added to the count.
    async fn most_of_a_poll(
        task: impl Future,
        count: &Cell<usize>,
        over: impl Fn() -> bool,
    ) -> usize {
        let mut task = pin!(Metered::new(Rc::<Share>::default(), task));
        let mut most = 0;
        poll_fn(|context| {
            let before = count.get();
            let ended = task.as_mut().poll(context).is_ready();
            most = most.max(count.get() - before);
            match ended || over() {
                true => Poll::Ready(()),
                // What waits for the next round is woken by nothing else here.
                false => {
                    crate::meter::next_round();
                    super::later(context)
                }
            }
        })
        .await;
        most
    }

    async fn empty(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        Ok(Response::new(Full::default()))
    }

    #[test]
    fn a_poll_of_a_connection_handles_a_slice_of_what_its_client_sent() {
        const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        // SETTINGS, PING, WINDOW_UPDATE of the connection, PRIORITY, and a frame of no known type.
        let frames: [&[u8]; 5] = [
            b"\0\0\0\x04\0\0\0\0\0",
            b"\0\0\x08\x06\0\0\0\0\0abcdefgh",
            b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
            b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\x03\x10",
            b"\0\0\0\x55\0\0\0\0\0",
        ];
        let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let rows = frames.map(|frame| (BEGIN, frame));
        for (begin, repeated) in rows.into_iter().chain([(&b""[..], &requests[..])]) {
            on_a_thread(async {
                let (flood, read, _) = flood(begin, repeated);
                let builder = hyper_util::server::conn::auto::Builder::new(LocalExecutor);
                let stream = TokioIo::new(Sliced::new(flood));
                let serving = builder.serve_connection(stream, service_fn(empty));
                let most = most_of_a_poll(serving, &read, || read.get() >= FLOOD_BYTES).await;
                assert!(most > 0 && most <= SLICE_BYTES, "{most} of {repeated:?}");
            });
        }
    }

    #[test]
    fn a_poll_of_a_connection_writes_a_slice() {
        on_a_thread(async {
            let (flood, _, written) = flood(b"", b"-");
            let mut stream = Sliced::new(flood);
            let write = async {
                for _ in 0..FLOOD_BYTES / 4096 {
                    stream.write_all(&[0; 4096]).await.expect("written");
                }
            };
            let most = most_of_a_poll(write, &written, || false).await;
            assert_eq!((most, written.get()), (SLICE_BYTES, FLOOD_BYTES));
        });
    }

    #[test]
    fn a_slice_ends_by_its_bytes_or_by_its_time() {
        let mut slice = Slice::default();
        let began = Instant::now();
        let of_first = slice.of(1);
        assert_eq!(of_first.readable(began), READ_MOST);
        of_first.read = SLICE_BYTES - 1;
        assert_eq!(of_first.readable(began), 1);
        of_first.read = SLICE_BYTES;
        assert_eq!(of_first.readable(began), 0);
        let of_second = slice.of(2);
        assert_eq!(of_second.readable(began), READ_MOST);
        assert_eq!(of_second.readable(began + SLICE_TIME), 0);
        assert_eq!(slice.of(2).readable(began + SLICE_TIME), 0);
        assert_eq!(slice.of(3).readable(began + SLICE_TIME), READ_MOST);
    }
}
