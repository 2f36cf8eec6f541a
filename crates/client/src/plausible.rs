//! Which positions and sequence ids an agent believes.
//!
//! An agent never goes back, so a number that is too high makes it refuse a correct broker for ever. A broken or
//! compromised broker could send such a number. No honest broker sends one beyond these limits.

use brokkr_api::{Position, SequenceId};

/// How far an epoch, which is a time in Unix seconds, may be ahead of the local clock. A cluster whose clock is behind by
/// more than this refuses a raised epoch and says so. The time in the broker's responses is not used: it may be as wrong.
pub const MOST_SECONDS_AHEAD: i64 = 24 * 60 * 60;

/// How far the horizon, a PostgreSQL transaction id, can move while an agent is away, or from zero in a new epoch. At
/// 100,000 transactions a second, this takes 89 years.
pub const MOST_TRANSACTIONS_AHEAD: u64 = 1 << 48;

/// How far sequence ids can move while an agent is away. Raising the epoch skips at most 10^12 ids, so this allows for a
/// thousand raises. It is a nine-thousandth of the highest possible id.
pub const MOST_SEQUENCE_IDS_AHEAD: i64 = 1_000_000_000_000_000;

/// A number that no honest broker sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Implausible {
    #[error(
        "its epoch {found} is more than a day after the local time {now}; check the clock of this machine and the broker"
    )]
    EpochInFuture { found: i64, now: i64 },
    #[error("its horizon {found} is too far above {seen}, the highest one seen")]
    HorizonTooHigh { found: u64, seen: u64 },
    #[error("its sequence id {found} is too far above {seen}, the highest one known here")]
    SequenceTooHigh { found: SequenceId, seen: SequenceId },
}

impl Implausible {
    /// Returns the reason as it appears in logs, in the agent's stored state and in metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::EpochInFuture { .. } => "epoch_in_future",
            Self::HorizonTooHigh { .. } => "horizon_too_high",
            Self::SequenceTooHigh { .. } => "sequence_too_high",
        }
    }
}

/// Checks the position of a response against the highest one seen; `now` is the local time in Unix seconds, which no
/// broker can change.
pub fn check_position(seen: Position, found: Position, now: i64) -> Result<(), Implausible> {
    if found <= seen {
        return Ok(());
    }
    if found.epoch > now.saturating_add(MOST_SECONDS_AHEAD) {
        return Err(Implausible::EpochInFuture { found: found.epoch, now });
    }
    let seen = if found.epoch == seen.epoch { seen.horizon } else { 0 };
    if found.horizon > seen.saturating_add(MOST_TRANSACTIONS_AHEAD) {
        return Err(Implausible::HorizonTooHigh { found: found.horizon, seen });
    }
    Ok(())
}

/// Checks the sequence ids of a response against the highest one that this agent has.
pub fn check_sequence_ids(
    seen: SequenceId,
    found: impl IntoIterator<Item = SequenceId>,
) -> Result<(), Implausible> {
    match found.into_iter().max() {
        Some(found) if found.0 > seen.0.saturating_add(MOST_SEQUENCE_IDS_AHEAD) => {
            Err(Implausible::SequenceTooHigh { found, seen })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn at(epoch: i64, horizon: u64) -> Position {
        Position { epoch, horizon }
    }

    #[test]
    fn an_epoch_may_be_at_most_a_day_ahead_of_the_own_clock() {
        let seen = at(1, 500);
        assert_eq!(check_position(seen, at(NOW, 3), NOW), Ok(()), "a raise");
        assert_eq!(check_position(seen, at(NOW + MOST_SECONDS_AHEAD, 3), NOW), Ok(()));
        for found in [NOW + MOST_SECONDS_AHEAD + 1, i64::MAX] {
            let refused = check_position(seen, at(found, 3), NOW);
            assert_eq!(refused, Err(Implausible::EpochInFuture { found, now: NOW }));
        }
        // What was accepted before stays acceptable if the clock goes back.
        assert_eq!(check_position(at(NOW, 3), at(NOW, 3), 0), Ok(()));
    }

    #[test]
    fn a_horizon_may_move_by_the_transactions_of_decades() {
        let seen = at(NOW, 5_000_000_000_000);
        assert_eq!(check_position(seen, at(NOW, seen.horizon + MOST_TRANSACTIONS_AHEAD), NOW), Ok(()));
        for found in [seen.horizon + MOST_TRANSACTIONS_AHEAD + 1, u64::MAX] {
            let refused = check_position(seen, at(NOW, found), NOW);
            assert_eq!(refused, Err(Implausible::HorizonTooHigh { found, seen: seen.horizon }));
        }
        // In a new epoch, transaction ids start anywhere, but not near their end.
        assert_eq!(check_position(seen, at(NOW + 1, 3), NOW), Ok(()));
        let refused = check_position(seen, at(NOW + 1, u64::MAX), NOW);
        assert_eq!(refused, Err(Implausible::HorizonTooHigh { found: u64::MAX, seen: 0 }));
        // A lower position is judged by its age, not here.
        assert_eq!(check_position(seen, at(1, u64::MAX), NOW), Ok(()));
    }

    #[test]
    fn sequence_ids_may_move_by_a_thousand_raises() {
        let seen = SequenceId(40);
        let highest = SequenceId(40 + MOST_SEQUENCE_IDS_AHEAD);
        assert_eq!(check_sequence_ids(seen, []), Ok(()));
        assert_eq!(check_sequence_ids(seen, [SequenceId(1), highest]), Ok(()));
        for found in [SequenceId(highest.0 + 1), SequenceId(i64::MAX)] {
            let refused = check_sequence_ids(seen, [SequenceId(1), found]);
            assert_eq!(refused, Err(Implausible::SequenceTooHigh { found, seen }));
        }
        assert_eq!(check_sequence_ids(SequenceId(i64::MAX), [SequenceId(i64::MAX)]), Ok(()));
    }
}
