//! Datagrams between a guest and the thread that sends and receives them: frames in the windows of an exchange.
//!
//! A frame is written whole or not at all. So the other side never finds a part of one, and a datagram that finds no room
//! is dropped, as any network may do. None is larger than half a window: while half of it is free, there is room for one.

use crate::call_error::CallError;
use leasehold_crossing::{Received, RingReader, RingWriter};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of a frame before those of its datagram.
const HEAD: usize = 32;

/// The most bytes of a datagram that UDP carries over IPv4.
const UDP: usize = 65_507;

/// The most bytes of a datagram in an exchange with windows of this many bytes.
pub const fn datagram_bytes(window: usize) -> usize {
    let half = (window / 2).saturating_sub(HEAD);
    if half < UDP { half } else { UDP }
}

/// What crosses in the windows of a socket for datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A datagram to or from this address, whose bytes follow.
    Datagram(SocketAddr),
    /// From the guest: the socket has this peer from now on, or none in particular.
    Peer(Option<SocketAddr>),
    /// From the guest: through how many networks a datagram may go from now on.
    HopLimit(u8),
    /// To the guest: why something of the above was not done, or what the network said of an earlier datagram.
    Failed(CallError),
}

const DATAGRAM: u8 = 0;
const PEER: u8 = 1;
const NO_PEER: u8 = 2;
const HOP_LIMIT: u8 = 3;
const FAILED: u8 = 4;

const V4: u8 = 4;
const V6: u8 = 6;

/// A head is: kind, family, port, bytes that follow, flow, scope, address; numbers in the order of this machine.
impl Frame {
    fn head(self, bytes: usize) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        // At most `UDP`.
        head[4..8].copy_from_slice(&(bytes as u32).to_ne_bytes());
        let (kind, address) = match self {
            Self::Datagram(address) => (DATAGRAM, Some(address)),
            Self::Peer(Some(address)) => (PEER, Some(address)),
            Self::Peer(None) => (NO_PEER, None),
            Self::HopLimit(hops) => {
                head[1] = hops;
                (HOP_LIMIT, None)
            }
            Self::Failed(error) => {
                head[1] = error as u8;
                (FAILED, None)
            }
        };
        head[0] = kind;
        if let Some(address) = address {
            head[2..4].copy_from_slice(&address.port().to_ne_bytes());
            match address {
                SocketAddr::V4(v4) => {
                    head[1] = V4;
                    head[16..20].copy_from_slice(&v4.ip().octets());
                }
                SocketAddr::V6(v6) => {
                    head[1] = V6;
                    head[8..12].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                    head[12..16].copy_from_slice(&v6.scope_id().to_ne_bytes());
                    head[16..].copy_from_slice(&v6.ip().octets());
                }
            }
        }
        head
    }

    /// The frame of a head, and how many bytes follow; `None` of what is no head.
    fn of_head(head: &[u8; HEAD]) -> Option<(Self, usize)> {
        let four = |at: usize| head[at..at + 4].try_into().map(u32::from_ne_bytes);
        let port = u16::from_ne_bytes([head[2], head[3]]);
        let address = || match head[1] {
            V4 => {
                let octets = <[u8; 4]>::try_from(&head[16..20]).ok()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(octets), port).into())
            }
            V6 => {
                let octets = <[u8; 16]>::try_from(&head[16..]).ok()?;
                let (flow, scope) = (four(8).ok()?, four(12).ok()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope).into())
            }
            _ => None,
        };
        let frame = match head[0] {
            DATAGRAM => Self::Datagram(address()?),
            PEER => Self::Peer(Some(address()?)),
            NO_PEER => Self::Peer(None),
            HOP_LIMIT => Self::HopLimit(head[1]),
            FAILED => Self::Failed(*CallError::ALL.get(usize::from(head[1]))?),
            _ => return None,
        };
        Some((frame, four(4).ok()? as usize))
    }
}

/// Writes frames in their order as far as there is room, at once, and returns how many; `None` once the reader takes no more.
pub(crate) fn write(ring: &mut RingWriter, frames: &[(Frame, &[u8])]) -> Option<usize> {
    let mut room = ring.room()?;
    let fits = frames.iter().take_while(|(_, bytes)| {
        let left = room.checked_sub(HEAD + bytes.len());
        left.map(|left| room = left).is_some()
    });
    let heads = fits.map(|(frame, bytes)| frame.head(bytes.len()));
    let heads: Vec<[u8; HEAD]> = heads.collect();
    let written = heads.iter().zip(frames);
    let parts: Vec<&[u8]> = written
        .flat_map(|(head, (_, bytes))| [&head[..], *bytes])
        .collect();
    ring.write_whole(&parts)?;
    Some(heads.len())
}

/// Takes the next frame with its bytes.
///
/// # Errors
/// Why there is none.
pub(crate) fn read(ring: &mut RingReader) -> Result<(Frame, Vec<u8>), Received> {
    let mut head = [0; HEAD];
    match ring.read(&mut head) {
        Received::Bytes(HEAD) => {}
        Received::Bytes(_) => return Err(Received::Finished),
        other => return Err(other),
    }
    // Nothing but frames is written here, and each at once.
    let (frame, following) = Frame::of_head(&head).ok_or(Received::Finished)?;
    let mut bytes = vec![0; following.min(UDP)];
    if !bytes.is_empty() && ring.read(&mut bytes) != Received::Bytes(following) {
        return Err(Received::Finished);
    }
    Ok((frame, bytes))
}

#[cfg(test)]
mod tests {
    use super::{Frame, HEAD, datagram_bytes, read, write};
    use crate::call_error::CallError;
    use leasehold_crossing::{Received, ring};

    #[test]
    fn what_is_read_is_what_was_written_frame_by_frame() {
        let (mut writer, mut reader) = ring(1000);
        let address = |text: &str| text.parse().expect(text);
        let frames = [
            (Frame::Datagram(address("1.2.3.4:5")), &b"five"[..]),
            (Frame::Datagram(address("[fe80::1%7]:65535")), b""),
            (Frame::Peer(Some(address("[::1]:9"))), b""),
            (Frame::Peer(None), b""),
            (Frame::HopLimit(255), b""),
        ];
        // Past the end of the ring, too.
        for _ in 0..50 {
            for (frame, bytes) in frames {
                assert_eq!(write(&mut writer, &[(frame, bytes)]), Some(1));
            }
            for (frame, bytes) in frames {
                assert_eq!(read(&mut reader), Ok((frame, bytes.to_vec())));
            }
            for error in CallError::ALL {
                let failed = Frame::Failed(error);
                assert_eq!(write(&mut writer, &[(failed, b"")]), Some(1));
                assert_eq!(read(&mut reader), Ok((Frame::Failed(error), Vec::new())));
            }
        }
        assert_eq!(read(&mut reader), Err(Received::Nothing));
        drop(reader);
        assert_eq!(write(&mut writer, &[(Frame::Peer(None), b"")]), None);
    }

    #[test]
    fn the_largest_datagram_has_room_while_half_of_the_window_is_free_and_none_is_written_in_part()
    {
        let window = 4096;
        let (mut writer, mut reader) = ring(window);
        let largest = vec![1; datagram_bytes(window)];
        let frame = Frame::Datagram("1.2.3.4:5".parse().expect("an address"));
        assert_eq!(write(&mut writer, &[(frame, &largest)]), Some(1));
        assert_eq!(writer.room(), Some(window / 2));
        let more: [(Frame, &[u8]); 3] = [(frame, &largest[1..]), (frame, b""), (frame, b"")];
        assert_eq!(write(&mut writer, &more), Some(1));
        assert_eq!(writer.room(), Some(1));
        assert_eq!(reader.waiting(), window - 1);
        assert_eq!(read(&mut reader).expect("whole").1.len(), largest.len());
        assert_eq!(read(&mut reader).expect("whole").1.len(), largest.len() - 1);
        assert_eq!(datagram_bytes(1 << 20), 65_507);
        assert_eq!(datagram_bytes(HEAD), 0);
    }
}
