//! The size of a message that was received.

/// What a receive wrote into the receiver's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Received {
    /// Bytes of the message.
    pub length: u32,
    /// Capabilities of the message.
    pub capabilities: u32,
}

impl Received {
    /// Returns the result of a receiving function: `length + (capabilities << 32)`.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.length as u64 | (self.capabilities as u64) << 32
    }

    /// Takes apart what [`pack`](Self::pack) made.
    #[must_use]
    pub const fn unpack(packed: u64) -> Self {
        Received {
            length: packed as u32,
            capabilities: (packed >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Received;

    #[test]
    fn what_was_packed_is_unpacked() {
        for (length, capabilities) in [(0, 0), (1, 4), (64 << 10, 3), (u32::MAX, 4)] {
            let received = Received {
                length,
                capabilities,
            };
            assert_eq!(Received::unpack(received.pack()), received);
        }
    }
}
