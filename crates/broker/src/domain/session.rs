//! Whether a process of an agent may still write. The process with the highest session count wins; two
//! processes with the same count must both stop.

use brokkr_api::ErrorCode;
use brokkr_api::protocol::Session;

use super::facts::SessionFacts;

/// Returns why a request of this session is refused, if it is.
#[must_use]
pub fn refusal(known: SessionFacts, claimed: Session) -> Option<ErrorCode> {
    if claimed.count < known.count {
        return Some(ErrorCode::BRK1004);
    }
    // A session with a higher count than the known one is not refused: it was opened at another replica, and
    // wins.
    let other = known.instance.is_some_and(|instance| instance != claimed.instance);
    (claimed.count == known.count && (known.duplicated || other)).then_some(ErrorCode::BRK1005)
}

#[cfg(test)]
mod tests {
    use brokkr_api::InstanceId;

    use super::*;

    #[test]
    fn the_highest_count_wins_and_equal_counts_are_refused() {
        let (mine, other) = (InstanceId::generate(), InstanceId::generate());
        let known = SessionFacts { count: 3, instance: Some(mine), duplicated: false };
        assert_eq!(refusal(known, Session { count: 3, instance: mine }), None);
        assert_eq!(refusal(known, Session { count: 4, instance: other }), None);
        assert_eq!(refusal(known, Session { count: 2, instance: mine }), Some(ErrorCode::BRK1004));
        assert_eq!(refusal(known, Session { count: 3, instance: other }), Some(ErrorCode::BRK1005));
        let duplicated = SessionFacts { duplicated: true, ..known };
        assert_eq!(refusal(duplicated, Session { count: 3, instance: mine }), Some(ErrorCode::BRK1005));
    }
}
