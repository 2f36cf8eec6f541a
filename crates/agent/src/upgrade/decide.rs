//! What a process of an upgrade does next. Pure: no client and no clock.

use brokkr_api::upgrades::UpgradeReason;

use super::role::{DeployedVersion, End, Role, StoredUpgrade, Verdict, role};

/// What a process does when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstStep {
    /// It serves, like any agent.
    Serve,
    /// Its successor has taken over: it serves only after it has restored its own image, because the two would otherwise supersede
    /// each other in turns.
    StandBy,
    /// It is the successor: it proves itself first.
    Prove,
    /// It never serves, and says why.
    Refuse(UpgradeReason),
    /// It has refused before.
    Wait,
}

/// Returns what a process does when it starts.
#[must_use]
pub fn first_step(own: &str, deployed: &DeployedVersion, stored: &StoredUpgrade) -> FirstStep {
    match (role(own, deployed, stored), stored.verdict_on(deployed)) {
        (Role::Incumbent, _) => FirstStep::Serve,
        (Role::Watching, Some(Verdict::TakesOver)) => FirstStep::StandBy,
        (Role::Watching, _) => FirstStep::Serve,
        (Role::Candidate | Role::Foreign, Some(Verdict::Refuses { .. })) => FirstStep::Wait,
        (Role::Candidate, _) => FirstStep::Prove,
        (Role::Foreign, _) => FirstStep::Refuse(UpgradeReason::OtherVersion { found: own.to_owned() }),
    }
}

/// What the former process does while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// No upgrade is under way.
    Idle,
    /// The broker does not know yet how the last upgrade ended.
    ReportEnd(End),
    Watch,
    Restore(Cause),
}

/// Why the former image is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The new process has refused to take over.
    Refused(UpgradeReason),
    /// The upgrade was not confirmed in time.
    Overdue { has_taken_over: bool },
}

/// Returns what the former process does next. `is_overdue`: it has watched the upgrade for as long as the upgrade may take.
#[must_use]
pub fn next_step(
    own: &str,
    deployed: &DeployedVersion,
    stored: &StoredUpgrade,
    is_overdue: bool,
) -> NextStep {
    if !deployed.is_under_way() {
        let unreported = stored.end_beside(deployed).filter(|end| !end.is_reported);
        return unreported.map_or(NextStep::Idle, |end| NextStep::ReportEnd(end.clone()));
    }
    match (role(own, deployed, stored), stored.verdict_on(deployed)) {
        (Role::Watching, Some(Verdict::Refuses { reason })) => {
            NextStep::Restore(Cause::Refused(reason.clone()))
        }
        (Role::Watching, verdict) if is_overdue => {
            NextStep::Restore(Cause::Overdue { has_taken_over: verdict == Some(&Verdict::TakesOver) })
        }
        // The owner has begun another change of the image, which this process does not undo.
        _ => NextStep::Watch,
    }
}

/// Returns whether the new process may raise the session count: the upgrade was not undone meanwhile.
#[must_use]
pub fn may_take_over(own: &str, deployed: &DeployedVersion, stored: &StoredUpgrade) -> bool {
    first_step(own, deployed, stored) == FirstStep::Prove
}

/// Returns whether the former process has to start again to serve: its successor has raised the session count above its own.
#[must_use]
pub fn is_superseded(own_session: i64, newest_session: i64) -> bool {
    newest_session > own_session
}

#[cfg(test)]
mod tests;
