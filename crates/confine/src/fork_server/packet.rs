//! What the processes send each other: a few bytes, and perhaps an open file.

use super::Ended;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io;
use std::mem::MaybeUninit;

/// Most bytes of a packet.
pub const MAX_PACKET_BYTES: usize = 16 << 10;

/// A request or a result.
#[derive(Debug, Default)]
pub struct Packet {
    /// At most [`MAX_PACKET_BYTES`].
    pub bytes: Vec<u8>,
    /// A file that is handed over.
    pub file: Option<OwnedFd>,
}

/// What is sent through a server's socket.
pub(super) enum Sent {
    /// From the process that asks to the server, and from a job through the server to the process that asked.
    Packet(Packet),
    /// From the server: the job was not started.
    Refused(io::Error),
    /// From the server: the job has ended.
    Ended(Ended),
}

const PACKET: u8 = 0;
const REFUSED: u8 = 1;
const CODE: u8 = 2;
const SIGNAL: u8 = 3;

/// The two ends of a connection that keeps the bounds of what is sent.
pub(super) fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Sends a packet.
///
/// # Errors
/// The system's; `InvalidInput` if it is too long.
pub(super) fn send(socket: &OwnedFd, packet: &Packet) -> io::Result<()> {
    if packet.bytes.len() > MAX_PACKET_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    send_parts(socket, &[&[PACKET], &packet.bytes], packet.file.as_ref())
}

/// Sends what has become of a job.
///
/// # Errors
/// The system's.
pub(super) fn send_end(socket: &OwnedFd, end: &Result<Ended, io::Error>) -> io::Result<()> {
    let (kind, number) = match end {
        Ok(Ended::Code(code)) => (CODE, *code),
        Ok(Ended::Signal(signal)) => (SIGNAL, *signal),
        Err(error) => (REFUSED, error.raw_os_error().unwrap_or(libc::EIO)),
    };
    send_parts(socket, &[&[kind], &number.to_le_bytes()], None)
}

fn send_parts(socket: &OwnedFd, parts: &[&[u8]; 2], file: Option<&OwnedFd>) -> io::Result<()> {
    let slices = parts.map(IoSlice::new);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    loop {
        match sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// Waits for what is sent; `None` if the other side has ended.
///
/// # Errors
/// The system's; `InvalidData` for what no other side sends.
pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<Sent>> {
    receive_with(socket, RecvFlags::empty())
}

/// The packet that a job has sent; `None` if it has sent none.
pub(super) fn receive_now(socket: &OwnedFd) -> Option<Packet> {
    match receive_with(socket, RecvFlags::DONTWAIT) {
        Ok(Some(Sent::Packet(packet))) => Some(packet),
        _ => None,
    }
}

fn receive_with(socket: &OwnedFd, flags: RecvFlags) -> io::Result<Option<Sent>> {
    let mut bytes = vec![0; 1 + MAX_PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        match recvmsg(
            socket,
            slices,
            &mut control,
            flags | RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    bytes.truncate(received);
    let Some((kind, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    let number = || {
        let number: Option<[u8; 4]> = rest.try_into().ok();
        number.map(i32::from_le_bytes)
    };
    let sent = match *kind {
        PACKET => Some(Sent::Packet(Packet {
            bytes: rest.to_vec(),
            file,
        })),
        REFUSED => number().map(|it| Sent::Refused(io::Error::from_raw_os_error(it))),
        CODE => number().map(|it| Sent::Ended(Ended::Code(it))),
        SIGNAL => number().map(|it| Sent::Ended(Ended::Signal(it))),
        _ => None,
    };
    sent.map(Some)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
