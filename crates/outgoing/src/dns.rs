//! Messages of DNS (RFC 1035): one question, and the addresses of its answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    V4 = 1,
    V6 = 28,
}

/// Bytes of a message's head.
const HEAD: usize = 12;

/// The most addresses of an answer that are used.
const ADDRESSES: usize = 16;

/// The class of the internet.
const INTERNET: u16 = 1;

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Addresses(Vec<IpAddr>),
    /// The name does not exist.
    NoName,
    /// It did not fit the datagram.
    Truncated,
    /// The server failed, or refuses to answer.
    Failed,
}

/// A question for a name; `None` if it is no name of DNS.
pub(crate) fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut message = Vec::with_capacity(HEAD + name.len() + 6);
    message.extend_from_slice(&id.to_be_bytes());
    // Recursion is asked for; one question.
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        if !(1..=63).contains(&label.len()) {
            return None;
        }
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    if message.len() > HEAD + 255 {
        return None;
    }
    message.extend_from_slice(&(kind as u16).to_be_bytes());
    message.extend_from_slice(&INTERNET.to_be_bytes());
    Some(message)
}

/// Reads what came for `question`; `None` if it is no answer to it.
pub(crate) fn answer(message: &[u8], question: &[u8]) -> Option<Answer> {
    let asked = question.get(HEAD..)?;
    let is_ours = message.get(..2)? == question.get(..2)? && message.get(2)? & 0x80 != 0;
    let repeated = message.get(HEAD..HEAD + asked.len())?;
    if !is_ours || !repeated.eq_ignore_ascii_case(asked) || number(message, 4)? != 1 {
        return None;
    }
    if message.get(2)? & 2 != 0 {
        return Some(Answer::Truncated);
    }
    match message.get(3)? & 15 {
        0 => {}
        3 => return Some(Answer::NoName),
        _ => return Some(Answer::Failed),
    }
    let kind = number(asked, asked.len() - 4)?;
    let mut addresses = Vec::new();
    let mut at = HEAD + asked.len();
    for _ in 0..number(message, 6)? {
        at = past_name(message, at)?;
        let (own, class) = (number(message, at)?, number(message, at + 2)?);
        let length = usize::from(number(message, at + 8)?);
        let data = message.get(at + 10..at + 10 + length)?;
        at += 10 + length;
        if (own, class) == (kind, INTERNET) && addresses.len() < ADDRESSES {
            addresses.push(address(data)?);
        }
    }
    Some(Answer::Addresses(addresses))
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn address(data: &[u8]) -> Option<IpAddr> {
    match data.len() {
        4 => <[u8; 4]>::try_from(data)
            .ok()
            .map(|data| Ipv4Addr::from(data).into()),
        16 => <[u8; 16]>::try_from(data)
            .ok()
            .map(|data| Ipv6Addr::from(data).into()),
        _ => None,
    }
}

/// Where a name ends that begins at `at`.
fn past_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..64 => at += 1 + usize::from(length),
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Kind, answer, question};

    fn answered(question: &[u8], flags: [u8; 2], records: &[&[u8]]) -> Vec<u8> {
        let mut message = question.to_vec();
        message[2..4].copy_from_slice(&flags);
        message[7] = records.len() as u8;
        records
            .iter()
            .for_each(|record| message.extend_from_slice(record));
        message
    }

    const ALIAS: &[u8] = &[192, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, b'b', 192, 14];
    const ADDRESS: &[u8] = &[1, b'b', 192, 14, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4];

    #[test]
    fn the_addresses_of_an_answer_are_read_behind_aliases() {
        let question = question(7, "a.example", Kind::V4).expect("a name");
        let message = answered(&question, [0x81, 0x80], &[ALIAS, ADDRESS]);
        let expected = Answer::Addresses(vec!["1.2.3.4".parse().expect("an address")]);
        assert_eq!(answer(&message, &question), Some(expected));
        let nothing = answered(&question, [0x81, 0x83], &[]);
        assert_eq!(answer(&nothing, &question), Some(Answer::NoName));
        let cut = answered(&question, [0x83, 0x80], &[]);
        assert_eq!(answer(&cut, &question), Some(Answer::Truncated));
    }

    #[test]
    fn what_is_no_answer_to_the_question_is_none() {
        let asked = question(7, "a.example", Kind::V4).expect("a name");
        let message = answered(&asked, [0x81, 0x80], &[ALIAS, ADDRESS]);
        let other = question(7, "b.example", Kind::V4).expect("a name");
        let later = question(8, "a.example", Kind::V4).expect("a name");
        assert_eq!(answer(&message, &other), None);
        assert_eq!(answer(&message, &later), None);
        assert_eq!(answer(&asked, &asked), None);
        for length in 0..message.len() {
            assert_eq!(answer(&message[..length], &asked), None, "{length} bytes");
        }
        // Whatever bytes come, they are read within their bounds.
        for at in 0..message.len() {
            for byte in 0..=u8::MAX {
                let mut message = message.clone();
                message[at] = byte;
                let _ = answer(&message, &asked);
            }
        }
    }

    #[test]
    fn a_name_without_labels_or_with_long_ones_is_not_asked_for() {
        let long = "a".repeat(64);
        let many = "a.".repeat(128);
        for name in ["", ".", "a..b", ".a", &long, &many] {
            assert_eq!(question(1, name, Kind::V4), None, "{name:?}");
        }
        assert!(question(1, "a.", Kind::V6).is_some());
    }
}
