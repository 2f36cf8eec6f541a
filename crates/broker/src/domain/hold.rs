//! After a restore: what is allowed while on hold, and where epoch and sequence ids continue.

use http::Method;

/// The gap that raising the epoch (`raise`) leaves above every sequence id that is known to be issued. It
/// covers ids that were issued after the backup and that no agent reports.
pub const GAP: i64 = 1_000_000;
/// The gap above the database's last id is at least this much for each second since that id was issued.
/// Otherwise two restores of the same backup, with no agent contact in between, would continue from the same
/// id. This is enough for two thousand submissions a second, if the epoch is raised at most once in ten
/// minutes.
pub const GAP_PER_SECOND: i64 = 2_000;
/// A claim is the highest id that an agent reports. A claim that is further than this above the database's
/// last id is ignored: no one published that much after the backup, and a single agent must not be able to
/// exhaust the ids.
pub const MAX_PLAUSIBLE_GAP: i64 = 1_000_000_000_000;

/// The nouns that users may change while on hold: those that affect no target state. Everything else, new routes
/// included, is refused.
pub const WRITABLE_ON_HOLD: [&str; 6] =
    ["api-tokens", "join-tokens", "sessions", "webhooks", "audit", "system"];

/// Returns whether a user's request is allowed while the installation is on hold.
#[must_use]
pub fn is_allowed_on_hold(method: &Method, path: &str) -> bool {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return true;
    }
    let mut parts = path.trim_start_matches('/').split('/').skip(2);
    let noun = parts.next().unwrap_or_default();
    // The keys of the agent that caused the hold may have to be revoked.
    let revokes_keys = noun == "agents" && parts.nth(1) == Some("keys");
    WRITABLE_ON_HOLD.contains(&noun) || revokes_keys
}

/// Where epoch and sequence ids continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    pub epoch: i64,
    /// The highest id that is known to be issued.
    pub highest: i64,
    /// Ids continue above this one.
    pub sequence: i64,
}

/// The ids that the database issued. Times are Unix seconds, by its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseIds {
    pub epoch: i64,
    /// The highest id that it issued.
    pub sequence: i64,
    /// When it last issued an id, or its ids were raised.
    pub at: i64,
}

/// Returns where to continue: above every id that the database knows or that an agent plausibly claims.
#[must_use]
pub fn raise(database: DatabaseIds, now: i64, claims: impl IntoIterator<Item = i64>) -> Raised {
    let here = database.sequence;
    let plausible = claims.into_iter().filter(|claim| is_plausible(here, *claim));
    let highest = plausible.fold(here, i64::max);
    let lost = (now - database.at).max(0);
    let sequence = (highest + GAP).max(here + lost.saturating_mul(GAP_PER_SECOND));
    Raised { epoch: now.max(database.epoch + 1), highest, sequence }
}

#[must_use]
pub fn is_plausible(here: i64, claim: i64) -> bool {
    claim.checked_sub(here).is_some_and(|above| above <= MAX_PLAUSIBLE_GAP)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn on_hold_changes_of_target_states_are_refused_and_the_rest_is_allowed() {
        for (method, path, passes) in [
            (Method::GET, "/api/v1/stacks", true),
            (Method::PUT, "/api/v1/stacks/web", false),
            (Method::POST, "/api/v1/stacks/web/deployment-objects", false),
            (Method::DELETE, "/api/v1/stacks/web", false),
            (Method::PATCH, "/api/v1/agents/shop-1", false),
            (Method::PUT, "/api/v1/something-new", false),
            (Method::PATCH, "/api/v1/agents/keys", false),
            (Method::DELETE, "/api/v1/agents/shop-1/keys", true),
            (Method::POST, "/api/v1/api-tokens", true),
            (Method::DELETE, "/api/v1/api-tokens/7", true),
            (Method::POST, "/api/v1/sessions", true),
            (Method::DELETE, "/api/v1/sessions/current", true),
            (Method::POST, "/api/v1/system/stacks/web/settlement", true),
        ] {
            assert_eq!(is_allowed_on_hold(&method, path), passes, "{method} {path}");
        }
    }

    #[test]
    fn an_agent_that_claims_the_last_id_does_not_exhaust_the_ids() {
        let database = |epoch| DatabaseIds { epoch, sequence: 7, at: 5 };
        let raised = Raised { epoch: 5, highest: 9, sequence: 9 + GAP };
        assert_eq!(raise(database(1), 5, [i64::MAX, 9]), raised);
        assert_eq!(raise(database(9), 5, []), Raised { epoch: 10, highest: 7, sequence: 7 + GAP });
        let later = raise(database(1), 1005, [9]);
        assert_eq!(later.sequence, 7 + 1000 * GAP_PER_SECOND);
    }

    /// A step of a history. A restore makes the database forget; the agents do not.
    #[derive(Clone, Debug)]
    enum Step {
        Submit { received_by_agent: bool },
        Backup,
        RestoreAndRaise { which: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => any::<bool>().prop_map(|received_by_agent| Step::Submit { received_by_agent }),
            1 => Just(Step::Backup),
            2 => any::<usize>().prop_map(|which| Step::RestoreAndRaise { which }),
        ]
    }

    proptest! {
        #[test]
        fn a4_ids_and_epochs_stay_unique_over_any_history_of_restores(
            history in proptest::collection::vec(step(), 1..200),
            clock in proptest::collection::vec(0i64..3, 200),
        ) {
            let mut time = 1_700_000_000;
            let mut now = DatabaseIds { epoch: 1, sequence: 0, at: time };
            let mut backups = vec![now];
            let mut agents = 0;
            let mut ids = std::collections::HashSet::new();
            let mut epochs = std::collections::HashSet::from([1]);
            for (step, passed) in history.iter().zip(clock) {
                time += passed;
                match step {
                    Step::Submit { received_by_agent } => {
                        now = DatabaseIds { sequence: now.sequence + 1, at: time, ..now };
                        prop_assert!(ids.insert(now.sequence), "{} was issued twice", now.sequence);
                        if *received_by_agent {
                            agents = agents.max(now.sequence);
                        }
                    }
                    Step::Backup => backups.push(now),
                    Step::RestoreAndRaise { which } => {
                        time += 600;
                        let raised = raise(backups[which % backups.len()], time, [agents]);
                        prop_assert!(epochs.insert(raised.epoch), "epoch {} was used twice", raised.epoch);
                        prop_assert!(raised.sequence > agents);
                        now = DatabaseIds { epoch: raised.epoch, sequence: raised.sequence, at: time };
                    }
                }
            }
        }
    }
}
