//! The rotation of a token: how long the old one and its replacement are valid.

use brokkr_api::tokens::{API_TOKEN_SECONDS, ApiToken, LONGEST_API_TOKEN_SECONDS};
use jiff::{SignedDuration, Timestamp};

/// The expiry of the old and the new token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub old: Timestamp,
    pub new: Timestamp,
}

/// Returns the expiry of both tokens. The old token lasts for the overlap, but never longer than before. The
/// new one lasts as requested; by default as long as the original lifetime of the old one.
#[must_use]
pub fn ends(
    old: &ApiToken,
    now: Timestamp,
    overlap: SignedDuration,
    lifetime: Option<SignedDuration>,
) -> Ends {
    let overlapped = later(now, overlap);
    Ends {
        old: old.expires_at.map_or(overlapped, |end| end.min(overlapped)),
        new: later(now, lifetime.unwrap_or_else(|| lifetime_of(old))),
    }
}

/// Returns whether a token can still be replaced: it must be neither revoked nor expired.
#[must_use]
pub fn is_valid(token: &ApiToken, now: Timestamp) -> bool {
    token.revoked_at.is_none() && token.expires_at.is_none_or(|end| end > now)
}

fn lifetime_of(token: &ApiToken) -> SignedDuration {
    let longest = SignedDuration::from_secs(LONGEST_API_TOKEN_SECONDS.into());
    match token.expires_at {
        Some(end) => end.duration_since(token.created_at).min(longest),
        // The old token never expires, but new tokens always do.
        None => SignedDuration::from_secs(API_TOKEN_SECONDS.into()),
    }
}

fn later(now: Timestamp, by: SignedDuration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use brokkr_api::TokenId;
    use brokkr_api::tokens::Role;

    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    /// Created ten days ago, for this many days.
    fn made_for(days: Option<i32>) -> ApiToken {
        let created_at = now() - DAY * 10;
        ApiToken {
            id: TokenId::generate(),
            project: "shop".into(),
            name: "ci".into(),
            role: Role::Deployer,
            created_by: None,
            created_at,
            expires_at: days.map(|days| created_at + DAY * days),
            revoked_at: None,
        }
    }

    #[test]
    fn the_new_token_gets_the_original_lifetime_of_the_old_one() {
        assert_eq!(
            ends(&made_for(Some(30)), now(), DAY, None),
            Ends { old: now() + DAY, new: now() + DAY * 30 }
        );
        assert_eq!(ends(&made_for(Some(30)), now(), DAY, Some(DAY * 2)).new, now() + DAY * 2);
        assert_eq!(
            ends(&made_for(Some(3650)), now(), DAY, None).new,
            now() + DAY * 366,
            "at most the longest lifetime"
        );
        assert_eq!(ends(&made_for(None), now(), DAY, None).new, now() + DAY * 90);
    }

    #[test]
    fn the_old_token_never_outlives_its_own_expiry() {
        for (days, overlap, left) in [(11, 7, 1), (30, 7, 7), (30, 0, 0), (11, 1, 1)] {
            assert_eq!(
                ends(&made_for(Some(days)), now(), DAY * overlap, None).old,
                now() + DAY * left,
                "{days} days"
            );
        }
        assert_eq!(ends(&made_for(None), now(), DAY, None).old, now() + DAY);
    }

    #[test]
    fn an_expired_or_revoked_token_is_not_valid() {
        assert!(is_valid(&made_for(None), now()) && is_valid(&made_for(Some(11)), now()));
        assert!(!is_valid(&made_for(Some(10)), now()));
        assert!(!is_valid(&ApiToken { revoked_at: Some(now()), ..made_for(None) }, now()));
    }
}
