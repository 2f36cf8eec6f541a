//! Approvals of prunes, and pending prunes.

use brokkr_api::approvals::PruneApproval;
use brokkr_api::reason::Reason;
use brokkr_api::report::{ConditionKind, ConditionStatus};
use brokkr_api::status::StackStatus;

use super::Listed;
use super::table::Table;
use super::text::{age, clean};

impl Listed for PruneApproval {
    const NONE: &'static str = "no approvals for the newest version";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("SEQUENCE", |approval| approval.sequence_id)
            .plain("OBJECTS", |approval| approval.objects)
            .plain("FOR", |approval| {
                approval.agent_id.map_or_else(|| "every agent".to_owned(), |id| id.to_string())
            })
            .plain("BY", |approval| &approval.approved_by)
            .plain("AGE", |approval| age(approval.approved_at, now))
            .wide("TIME", |approval| format!("{:.0}", approval.approved_at))
    }

    fn name(&self) -> String {
        format!("approval/{}", self.sequence_id)
    }
}

/// Returns `eu-1: would delete 120 of 130 objects: …` for each agent with a pending prune.
pub fn pending(rows: &[StackStatus]) -> Vec<String> {
    rows.iter()
        .filter_map(|row| {
            let waits = row.conditions.iter().find(|condition| {
                condition.kind == ConditionKind::PrunePending
                    && condition.status == ConditionStatus::True
                    && matches!(condition.reason, Reason::PruneNeedsApproval { .. })
            })?;
            Some(format!("{}: {}", clean(&row.agent_name), clean(&waits.message)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;
    use brokkr_api::status::State;

    use super::super::samples::{AGENT, ago, conditions, rendered, row};
    use super::super::whole;
    use super::*;

    #[test]
    fn approvals() {
        let all = PruneApproval {
            sequence_id: SequenceId(42),
            objects: 120,
            agent_id: None,
            approved_by: "ana".into(),
            approved_at: ago(60),
        };
        let one = PruneApproval { agent_id: Some(AGENT.parse().unwrap()), ..all.clone() };
        insta::assert_snapshot!(rendered(&whole(vec![all, one])));
    }

    #[test]
    fn pending_prunes_have_the_agents_message() {
        let mut held = row("eu-1", 42, 42, State::Blocked);
        held.conditions = conditions();
        assert!(pending(std::slice::from_ref(&held)).is_empty());
        held.conditions[5].status = ConditionStatus::True;
        held.conditions[5].reason = Reason::Finalizer { finalizers: Vec::new() };
        assert!(pending(std::slice::from_ref(&held)).is_empty(), "blocked, but not for approval");
        held.conditions[5].reason = Reason::PruneNeedsApproval { delete: 120, total: 130 };
        held.conditions[5].message = "would delete 120 of 130 objects, so it waits for approval".into();
        assert_eq!(pending(&[held]), ["eu-1: would delete 120 of 130 objects, so it waits for approval"]);
    }
}
