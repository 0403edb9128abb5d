//! A client's socket, which knows when its client has gone even if nothing is read from it.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// The socket of a connection.
pub(crate) struct Socket(Rc<TcpStream>);

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Rc::new(stream))
    }

    /// Waits until the client has closed its half, or the connection was reset.
    ///
    /// A read of the socket shows that only behind all bytes that came before, and those are not read while a tenant
    /// takes no more of a body. No system call: the kernel says so of itself.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let stream = self.0.clone();
        // Urgent data is not asked for, so that of this interest there is only the end of what can be read.
        async move { drop(stream.ready(Interest::PRIORITY).await) }
    }

    /// Reads what there is. If that is less than there is room for, there is no more, and nothing has to ask the kernel again.
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut last = None;
        let read = self.0.try_io(Interest::READABLE, || {
            let read = rustix::io::read(&*self.0, &mut *into)?;
            if read == 0 || read == into.len() {
                return Ok(read);
            }
            last = Some(read);
            Err(io::ErrorKind::WouldBlock.into())
        });
        last.map_or(read, Ok)
    }

    fn write(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let read = loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read?,
            }
        };
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write_vectored(buffers))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write);
        Poll::Ready(ended.map_err(io::Error::from))
    }
}
