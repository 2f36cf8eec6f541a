//! Conditions that are not as they should be.

use brokkr_api::report::{Condition, ConditionKind, ConditionStatus};
use brokkr_api::status::StackStatus;
use jiff::Timestamp;

use super::text::{age, clean, explained};

/// Returns the conditions that are wrong. Of Accepted, Applied and Ready, returns only the first that is not True,
/// because the later ones follow from it.
pub fn wrong(row: &StackStatus) -> Vec<&Condition> {
    let find = |kind| row.conditions.iter().find(|condition| condition.kind == kind);
    let first_untrue = [ConditionKind::Accepted, ConditionKind::Applied, ConditionKind::Ready]
        .into_iter()
        .filter_map(find)
        .find(|condition| condition.status != ConditionStatus::True);
    let present = [
        ConditionKind::Suspended,
        ConditionKind::Contested,
        ConditionKind::Drifted,
        ConditionKind::PrunePending,
    ]
    .into_iter()
    .filter_map(find)
    .filter(|condition| condition.status == ConditionStatus::True);
    first_untrue.into_iter().chain(present).collect()
}

/// `not Ready for 5m: ImagePullBackOff: Deployment shop/web: …`
pub fn line(condition: &Condition, now: Timestamp) -> String {
    let since = age(condition.since, now);
    format!("{} for {since}: {}", title(condition), clean(details(condition)))
}

/// `Contested: Deployment shop/web: …`
pub fn summary(condition: &Condition) -> String {
    format!("{}: {}", title(condition), details(condition))
}

fn title(condition: &Condition) -> String {
    match condition.status {
        ConditionStatus::True => condition.kind.to_string(),
        ConditionStatus::False => format!("not {}", condition.kind),
        ConditionStatus::Unknown => format!("not yet {}", condition.kind),
    }
}

/// Returns reason and message, without a reason that only repeats the name of the condition.
fn details(condition: &Condition) -> String {
    let repeats_name = condition.reason.code() == condition.kind.to_string();
    if repeats_name && !condition.message.is_empty() {
        return condition.message.to_string();
    }
    explained(&condition.reason, &condition.message)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{conditions, contested_row, now, row};
    use super::*;
    use brokkr_api::status::State;

    #[test]
    fn only_wrong_conditions_are_returned_and_no_consequences() {
        let mut healthy = row("eu-1", 42, 42, State::Healthy);
        healthy.conditions = conditions();
        assert_eq!(wrong(&healthy), Vec::<&Condition>::new());
        assert_eq!(wrong(&row("old-agent", 42, 42, State::Healthy)), Vec::<&Condition>::new());
        for condition in &mut healthy.conditions[1..3] {
            condition.status = ConditionStatus::False;
        }
        let kinds: Vec<_> = wrong(&healthy).iter().map(|condition| condition.kind.clone()).collect();
        assert_eq!(kinds, [ConditionKind::Applied], "Ready follows from Applied");
        healthy.conditions[0].status = ConditionStatus::Unknown;
        assert!(summary(wrong(&healthy)[0]).starts_with("not yet Accepted: "));
    }

    #[test]
    fn a_line_has_kind_time_and_message_and_a_reason_only_if_it_differs_from_the_kind() {
        let row = contested_row("eu-1");
        let lines: Vec<_> = wrong(&row).into_iter().map(|condition| line(condition, now())).collect();
        assert_eq!(
            lines,
            [
                "not Ready for 5m: NotReady: Deployment shop/web: 2/3 replicas ready",
                "Contested for 5m: Deployment shop/web: kubectl-edit changes .spec.replicas \
                 (12 times in the last minute)",
            ]
        );
    }
}
