//! Positions: how much of the database a response reflects, and the proof that a broker issued one.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::InstallationId;

/// How much of the database a response reflects; comparable between replicas.
///
/// `horizon` is a PostgreSQL transaction id: nothing in the response was written at or above it, and a
/// replica that has read everything below it knows at least as much. A restore may lower the horizon.
/// Then the epoch is raised, which is compared first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub struct Position {
    /// 1, or the time of the last raise in Unix seconds.
    pub epoch: i64,
    pub horizon: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.horizon)
    }
}

/// Names a row that a replica committed after it had read what it was about to show. A database without that row has lost
/// something that was shown, whatever its transaction ids say. Zero names no row.
///
/// The number is the microsecond of the database's clock, times 2048, plus a random number, so that a later mark is higher
/// and no other history has the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryMark(pub u64);

impl HistoryMark {
    const PER_MICROSECOND: u64 = 2048;

    /// Returns when the replica committed the row, by the clock of the database.
    #[must_use]
    pub fn time(self) -> Timestamp {
        let micros = i64::try_from(self.0 / Self::PER_MICROSECOND).unwrap_or(i64::MAX);
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
    }
}

/// The proof that the installation issued a position: the first 16 bytes of an HMAC-SHA-256.
pub type PositionMac = [u8; 16];

/// A position as it crosses the wire: `epoch.horizon.mark.mac`, with the MAC in hex.
///
/// Only the broker can make and check the MAC. Everyone else compares positions, and stores and sends the whole token, so
/// that it proves what the database has lost. Without a mark and a MAC it is an unproven claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PositionToken {
    pub position: Position,
    pub mark: HistoryMark,
    pub mac: Option<PositionMac>,
}

impl PositionToken {
    /// Returns the token with the higher position; of two with the same position, the one with the later mark, which
    /// covers what the other one covers; then the proven one.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        let rank = |token: &Self| (token.position, token.mark, token.mac.is_some());
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl From<Position> for PositionToken {
    fn from(position: Position) -> Self {
        Self { position, mark: HistoryMark::default(), mac: None }
    }
}

impl fmt::Display for PositionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mac {
            Some(mac) => write!(f, "{}.{}.{}", self.position, self.mark.0, hex::encode(mac)),
            None => self.position.fmt(f),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse the position {0:?}")]
pub struct BadPosition(String);

impl FromStr for PositionToken {
    type Err = BadPosition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text).ok_or_else(|| BadPosition(text.to_owned()))
    }
}

fn read(text: &str) -> Option<PositionToken> {
    let mut parts = text.split('.');
    let epoch = parts.next()?.parse().ok()?;
    let horizon = parts.next()?.parse().ok()?;
    let (mark, mac) = match parts.next() {
        None => (HistoryMark::default(), None),
        Some(mark) => {
            let mut mac = PositionMac::default();
            hex::decode_to_slice(parts.next()?, &mut mac).ok()?;
            (HistoryMark(mark.parse().ok()?), Some(mac))
        }
    };
    let is_whole = parts.next().is_none();
    is_whole.then_some(PositionToken { position: Position { epoch, horizon }, mark, mac })
}

/// Returns the bytes that the MAC of a position covers.
#[must_use]
pub fn position_message(installation: InstallationId, position: Position, mark: HistoryMark) -> Vec<u8> {
    let mut message = b"brokkr position 1\0".to_vec();
    message.extend_from_slice(installation.0.as_bytes());
    message.extend_from_slice(&position.epoch.to_be_bytes());
    message.extend_from_slice(&position.horizon.to_be_bytes());
    message.extend_from_slice(&mark.0.to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> PositionToken {
        text.parse().unwrap()
    }

    #[test]
    fn a_raised_epoch_is_above_any_horizon() {
        let (before, after) = (token("1.99999"), token("1700000000.3"));
        assert!(after.position > before.position);
        assert_eq!(after.to_string(), "1700000000.3");
    }

    #[test]
    fn a_token_keeps_its_proof() {
        let text = "1700000000.42.3654303744000002047.000102030405060708090a0b0c0d0e0f";
        let proven = token(text);
        assert_eq!(proven.position, Position { epoch: 1_700_000_000, horizon: 42 });
        assert_eq!(proven.mark.time(), "2026-07-17T22:40:00Z".parse().unwrap());
        assert_eq!(proven.mac, Some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
        assert_eq!(proven.to_string(), text);
        assert_eq!(token("1.42").mac, None, "a claim without a proof");
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for text in [
            "",
            "7",
            "1.",
            ".1",
            "1.2.",
            "1.2.3",
            "1.2.3.",
            "1.2.3.00",
            "1.-2",
            "1.2.-3.000102030405060708090a0b0c0d0e0f",
            "1.2.000102030405060708090a0b0c0d0e0f",
            "1.2.3.000102030405060708090a0b0c0d0e0g",
            "1.2.3.000102030405060708090a0b0c0d0e0f10",
            "1.2.3.000102030405060708090a0b0c0d0e0f.3",
            "9223372036854775808.1",
            "1.18446744073709551616",
        ] {
            assert_eq!(text.parse::<PositionToken>(), Err(BadPosition(text.to_owned())));
        }
    }

    #[test]
    fn the_later_token_wins_and_a_proof_is_not_lost() {
        let proven = token("1.5.7.000102030405060708090a0b0c0d0e0f");
        let marked_later = token("1.5.8.000102030405060708090a0b0c0d0e0f");
        assert_eq!(proven.later(marked_later), marked_later);
        assert_eq!(marked_later.later(proven), marked_later);
        assert_eq!(proven.later(token("1.5")), proven);
        assert_eq!(token("1.5").later(proven), proven);
        assert_eq!(proven.later(token("1.6")), token("1.6"));
        assert_eq!(proven.later(token("1.4")), proven);
    }

    #[test]
    fn the_message_differs_in_every_part() {
        let installation = InstallationId::generate();
        let position = Position { epoch: 1, horizon: 2 };
        let mark = HistoryMark(5);
        let messages = [
            position_message(installation, position, mark),
            position_message(InstallationId::generate(), position, mark),
            position_message(installation, Position { epoch: 2, ..position }, mark),
            position_message(installation, Position { horizon: 3, ..position }, mark),
            position_message(installation, position, HistoryMark(6)),
        ];
        let distinct: std::collections::HashSet<_> = messages.iter().collect();
        assert_eq!(distinct.len(), messages.len());
    }
}
