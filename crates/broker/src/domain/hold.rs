//! After a restore: what stays possible while on hold, and where epoch and ids go on.

use http::Method;

/// The gap that a raise leaves above every id that is known to be handed out: what was handed out in the lost time
/// and is known to nobody any more lies in it.
pub const JUMP: i64 = 1_000_000;
/// At least this much for each second since the database last handed one out. Two restores of the same backup, both
/// unheard of by any agent, would else go on from the same id. Enough for two thousand submissions a second, and a raise
/// every ten minutes.
pub const PER_SECOND: i64 = 2_000;
/// An id that is further above the database's is not believed: nobody published that much in the lost time, and a
/// single agent must not be able to use the ids up.
pub const BELIEVED: i64 = 1_000_000_000_000;

/// What people may change while on hold: what no agent is told of. Everything else, new routes too, has to wait.
pub const FREE: [&str; 5] = ["api-tokens", "join-tokens", "webhooks", "audit", "system"];

/// Whether a person's request may pass while the broker is on hold.
#[must_use]
pub fn passes_while_held(method: &Method, path: &str) -> bool {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return true;
    }
    let mut parts = path.trim_start_matches('/').split('/').skip(2);
    let noun = parts.next().unwrap_or_default();
    // The agent that caused the hold may have to be shut out.
    let shuts_out = noun == "agents" && parts.nth(1) == Some("keys");
    FREE.contains(&noun) || shuts_out
}

/// Where epoch and sequence go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    pub epoch: i64,
    /// The highest id that is known to be handed out.
    pub highest: i64,
    /// Ids go on above this one.
    pub sequence: i64,
}

/// What the database remembers. Times are seconds since 1970, by its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    pub epoch: i64,
    /// The highest id that it handed out.
    pub sequence: i64,
    /// When it last handed one out, or was raised.
    pub at: i64,
}

/// Where a raise leads: above everything that the database or a believable agent knows of.
#[must_use]
pub fn raise(remembered: Remembered, now: i64, claims: impl IntoIterator<Item = i64>) -> Raised {
    let here = remembered.sequence;
    let believed = claims.into_iter().filter(|claim| is_believed(here, *claim));
    let highest = believed.fold(here, i64::max);
    let lost = (now - remembered.at).max(0);
    let sequence = (highest + JUMP).max(here + lost.saturating_mul(PER_SECOND));
    Raised { epoch: now.max(remembered.epoch + 1), highest, sequence }
}

#[must_use]
pub fn is_believed(here: i64, claim: i64) -> bool {
    claim.checked_sub(here).is_some_and(|above| above <= BELIEVED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_changes_a_target_state_waits_and_the_rest_goes_on() {
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
            (Method::POST, "/api/v1/system/stacks/web/settlement", true),
        ] {
            assert_eq!(passes_while_held(&method, path), passes, "{method} {path}");
        }
    }

    #[test]
    fn an_agent_that_claims_the_last_id_does_not_use_the_ids_up() {
        let remembered = |epoch| Remembered { epoch, sequence: 7, at: 5 };
        let raised = Raised { epoch: 5, highest: 9, sequence: 9 + JUMP };
        assert_eq!(raise(remembered(1), 5, [i64::MAX, 9]), raised);
        assert_eq!(raise(remembered(9), 5, []), Raised { epoch: 10, highest: 7, sequence: 7 + JUMP });
        let later = raise(remembered(1), 1005, [9]);
        assert_eq!(later.sequence, 7 + 1000 * PER_SECOND);
    }

    /// A history of submissions, backups, restores and raises. The database forgets; the agents do not.
    #[derive(Clone, Debug)]
    enum Happens {
        Submit { told_to_agent: bool },
        Backup,
        RestoreAndRaise { which: usize },
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            5 => any::<bool>().prop_map(|told_to_agent| Happens::Submit { told_to_agent }),
            1 => Just(Happens::Backup),
            2 => any::<usize>().prop_map(|which| Happens::RestoreAndRaise { which }),
        ]
    }

    proptest! {
        #[test]
        fn a4_ids_and_epochs_stay_unique_over_any_history_of_restores(
            history in proptest::collection::vec(happens(), 1..200),
            clock in proptest::collection::vec(0i64..3, 200),
        ) {
            let mut time = 1_700_000_000;
            let mut now = Remembered { epoch: 1, sequence: 0, at: time };
            let mut backups = vec![now];
            let mut agents = 0;
            let mut ids = std::collections::HashSet::new();
            let mut epochs = std::collections::HashSet::from([1]);
            for (happened, passed) in history.iter().zip(clock) {
                time += passed;
                match happened {
                    Happens::Submit { told_to_agent } => {
                        now = Remembered { sequence: now.sequence + 1, at: time, ..now };
                        prop_assert!(ids.insert(now.sequence), "{} was handed out twice", now.sequence);
                        if *told_to_agent {
                            agents = agents.max(now.sequence);
                        }
                    }
                    Happens::Backup => backups.push(now),
                    Happens::RestoreAndRaise { which } => {
                        time += 600;
                        let raised = raise(backups[which % backups.len()], time, [agents]);
                        prop_assert!(epochs.insert(raised.epoch), "epoch {} came twice", raised.epoch);
                        prop_assert!(raised.sequence > agents);
                        now = Remembered { epoch: raised.epoch, sequence: raised.sequence, at: time };
                    }
                }
            }
        }
    }
}
