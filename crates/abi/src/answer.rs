//! The result of a call of a core module: one `i64`.

use crate::errno::Errno;

/// Returns a result as core modules see it: zero or more is the value, less than zero the negated
/// number of the error.
///
/// A value above `i64::MAX`, which no function of the interface has, would read as an error.
#[must_use]
#[inline]
pub const fn encode(result: Result<u64, Errno>) -> i64 {
    match result {
        Ok(value) => value as i64,
        Err(errno) => -(errno.number() as i64),
    }
}

/// Takes apart what [`encode`] made.
///
/// # Errors
/// The error with the negated number. A number that this version does not know, from a newer host,
/// is [`Errno::Limit`].
#[inline]
pub const fn decode(returned: i64) -> Result<u64, Errno> {
    if returned >= 0 {
        return Ok(returned as u64);
    }
    match Errno::from_number(returned.unsigned_abs()) {
        Some(errno) => Err(errno),
        None => Err(Errno::Limit),
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};
    use crate::Errno;

    #[test]
    fn every_result_survives_the_way_through_an_i64() {
        for value in [0, 1, u64::from(u32::MAX), i64::MAX as u64] {
            assert_eq!(decode(encode(Ok(value))), Ok(value));
        }
        for errno in Errno::ALL {
            assert_eq!(decode(encode(Err(errno))), Err(errno));
        }
    }

    #[test]
    fn an_error_of_a_newer_host_is_a_limit() {
        for number in [-16, -1_000, i64::MIN] {
            assert_eq!(decode(number), Err(Errno::Limit), "{number}");
        }
    }
}
