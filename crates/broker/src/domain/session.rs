//! May this process of an agent still write? The highest count serves; two with the same count both hold.

use brokkr_api::ErrorCode;
use brokkr_api::protocol::Session;

use super::facts::SessionFacts;

/// Why a request of this session is refused, if it is.
#[must_use]
pub fn refusal(known: SessionFacts, claimed: Session) -> Option<ErrorCode> {
    if claimed.count < known.count {
        return Some(ErrorCode::BRK1004);
    }
    // A count above ours was opened elsewhere and is the highest: it serves.
    let other = known.instance.is_some_and(|instance| instance != claimed.instance);
    (claimed.count == known.count && (known.tied || other)).then_some(ErrorCode::BRK1005)
}

#[cfg(test)]
mod tests {
    use brokkr_api::InstanceId;

    use super::*;

    #[test]
    fn the_highest_serves_and_equals_hold() {
        let (mine, other) = (InstanceId::generate(), InstanceId::generate());
        let known = SessionFacts { count: 3, instance: Some(mine), tied: false };
        assert_eq!(refusal(known, Session { count: 3, instance: mine }), None);
        assert_eq!(refusal(known, Session { count: 4, instance: other }), None);
        assert_eq!(refusal(known, Session { count: 2, instance: mine }), Some(ErrorCode::BRK1004));
        assert_eq!(refusal(known, Session { count: 3, instance: other }), Some(ErrorCode::BRK1005));
        let tied = SessionFacts { tied: true, ..known };
        assert_eq!(refusal(tied, Session { count: 3, instance: mine }), Some(ErrorCode::BRK1005));
    }
}
