//! Messages of one byte that go through the kernel: on a host a pipe's, in a cell a channel's of
//! Leasehold's own kernel. Sender and receiver are the same task, so that no switch is needed.

use crate::{Outcome, Work};

/// Messages of a round.
const ROUND: u64 = 1_000;

#[cfg(unix)]
pub(crate) struct Messages {
    reader: std::io::PipeReader,
    writer: std::io::PipeWriter,
}

#[cfg(unix)]
impl Messages {
    pub(crate) fn prepare() -> Outcome<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self { reader, writer })
    }

    fn pass(&mut self, byte: u8) -> Outcome<u8> {
        use std::io::{Read, Write};
        let mut received = [0];
        self.writer.write_all(&[byte])?;
        self.reader.read_exact(&mut received)?;
        Ok(received[0])
    }
}

#[cfg(target_family = "wasm")]
pub(crate) struct Messages {
    channel: leasehold_guest::Channel,
}

#[cfg(target_family = "wasm")]
impl Messages {
    pub(crate) fn prepare() -> Outcome<Self> {
        let channel = leasehold_guest::Channel::create(4096)
            .map_err(|errno| format!("no channel: {errno:?}"))?;
        Ok(Self { channel })
    }

    fn pass(&mut self, byte: u8) -> Outcome<u8> {
        let mut received = [0];
        self.channel
            .send(&[byte], &[])
            .and_then(|()| self.channel.receive(&mut received, &mut []))
            .map_err(|errno| format!("no message: {errno:?}"))?;
        Ok(received[0])
    }
}

impl Work for Messages {
    fn round(&mut self) -> Outcome<bool> {
        for number in 0..ROUND {
            let (sent, received) = (number as u8, self.pass(number as u8)?);
            if sent != received {
                return Err(format!("sent {sent}, received {received}").into());
            }
        }
        Ok(true)
    }
}
