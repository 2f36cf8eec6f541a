//! The conditions as a table: what is known, and what is then said.

use brokkr_api::report::ConditionStatus::{False, True, Unknown};
use jiff::SignedDuration;
use strum::IntoEnumIterator;

use super::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

/// A stack of three resources that is as it should be.
fn well(stage: Stage) -> ConditionInputs<'static> {
    ConditionInputs {
        previous: &[],
        sequence: SequenceId(7),
        content: ContentState::Read,
        stage,
        failures: &[],
        ready: 3,
        total: 3,
        worst: None,
        drifted: &[],
        contested: &[],
        prune: None,
        now: NOW,
    }
}

#[track_caller]
fn says(
    view: &ConditionInputs<'_>,
    kind: ConditionKind,
    status: ConditionStatus,
    reason: &str,
    message: &str,
) {
    let all = conditions(view);
    let found = all.iter().find(|condition| condition.kind == kind).unwrap();
    assert_eq!((found.status, found.reason.as_str(), found.message.as_str()), (status, reason, message));
}

#[test]
fn f5_all_six_are_said_in_one_order_with_a_reason_and_a_message() {
    let stages = [
        Stage::Announce,
        Stage::Fetch,
        Stage::Inspect,
        Stage::Intend,
        Stage::Prerequisites,
        Stage::Validate,
        Stage::Apply,
        Stage::Prune,
        Stage::Settle,
        Stage::Steady,
        Stage::Stopped,
        Stage::Remove,
        Stage::Done,
    ];
    let nothing = Problem { reason: "", message: "m" };
    let broken = key("apps/Deployment/shop/web");
    let nameless = ObjectProblem { key: &broken, reason: "", message: "m" };
    for stage in stages {
        for content in [
            ContentState::Read,
            ContentState::NotYet(None),
            ContentState::NotYet(Some(nothing)),
            ContentState::Refused(nothing),
        ] {
            for view in [
                ConditionInputs { content, ..well(stage) },
                ConditionInputs {
                    content,
                    failures: &[nameless],
                    worst: Some(nameless),
                    drifted: &[&broken],
                    contested: &[Contest { key: &broken, manager: None, fields: &[], times: 0 }],
                    prune: Some(nothing),
                    ..well(stage)
                },
            ] {
                let all = conditions(&view);
                assert!(all.iter().map(|condition| condition.kind).eq(ConditionKind::iter()));
                for condition in all {
                    let camel = condition.reason.chars().all(|c| c.is_ascii_alphanumeric())
                        && condition.reason.starts_with(|c: char| c.is_ascii_uppercase());
                    assert!(camel, "{stage:?}: {condition:?}");
                    assert!(!condition.message.is_empty(), "{stage:?}: {condition:?}");
                    assert_eq!((condition.sequence_id, condition.since), (SequenceId(7), NOW));
                }
            }
        }
    }
}

#[test]
fn f5_a_stack_that_is_as_it_should_be() {
    let view = well(Stage::Steady);
    says(&view, ConditionKind::Accepted, True, "Valid", "the content is valid and content_state");
    says(&view, ConditionKind::Applied, True, "Applied", "everything is written");
    says(&view, ConditionKind::Ready, True, "Ready", "3/3 resources ready");
    says(&view, ConditionKind::Drifted, False, "NoDrift", "nothing was changed by others");
    says(&view, ConditionKind::Contested, False, "Uncontested", "nobody fights over a field");
    says(&view, ConditionKind::PrunePending, False, "NothingToPrune", "nothing waits to be deleted");
}

#[test]
fn f5_accepted_tells_whether_the_content_was_taken() {
    let unread = ConditionInputs { content: ContentState::NotYet(None), ..well(Stage::Fetch) };
    says(&unread, ConditionKind::Accepted, Unknown, "NotFetched", "the content is being fetched");
    let away = Problem { reason: "BrokerUnreachable", message: "connection refused" };
    let unreachable = ConditionInputs { content: ContentState::NotYet(Some(away)), ..well(Stage::Fetch) };
    says(&unreachable, ConditionKind::Accepted, Unknown, "BrokerUnreachable", "connection refused");
    let why = Problem { reason: "ChecksumMismatch", message: "the content is not what its checksum says" };
    let refused = ConditionInputs { content: ContentState::Refused(why), ..well(Stage::Stopped) };
    says(&refused, ConditionKind::Accepted, False, why.reason, why.message);
    let stays = "the content was refused; what was applied before stays";
    says(&refused, ConditionKind::Applied, False, "ChecksumMismatch", stays);
    says(&well(Stage::Remove), ConditionKind::Accepted, True, "Removal", "the removal is content_state");
}

#[test]
fn f5_applied_tells_where_it_is_and_what_stands_in_the_way() {
    for (stage, reason) in [
        (Stage::Fetch, "Fetching"),
        (Stage::Prerequisites, "WaitingForGround"),
        (Stage::Validate, "Validating"),
        (Stage::Apply, "Applying"),
        (Stage::Prune, "Pruning"),
        (Stage::Settle, "Settling"),
        (Stage::Stopped, "Stopped"),
        (Stage::Remove, "Removing"),
    ] {
        let all = conditions(&well(stage));
        assert_eq!((all[1].status, all[1].reason.as_str()), (False, reason), "{stage:?}");
    }
    let (web, job) = (key("apps/Deployment/shop/web"), key("batch/Job/shop/seed"));
    let failures = [
        ObjectProblem { key: &web, reason: "FieldImmutable", message: "spec.selector cannot be changed" },
        ObjectProblem { key: &job, reason: "Invalid", message: "no template" },
    ];
    let stopped = ConditionInputs { failures: &failures, ..well(Stage::Stopped) };
    let message = "Deployment shop/web: spec.selector cannot be changed (and 1 more)";
    says(&stopped, ConditionKind::Applied, False, "FieldImmutable", message);
    let why = Problem { reason: "ApprovalNeeded", message: "60 of 100 resources would be deleted" };
    let pruning = ConditionInputs { prune: Some(why), ..well(Stage::Prune) };
    says(&pruning, ConditionKind::Applied, False, why.reason, why.message);
    says(&pruning, ConditionKind::PrunePending, True, why.reason, why.message);
}

#[test]
fn f6_applied_is_not_ready_and_ready_names_the_worst() {
    let web = key("apps/Deployment/shop/web");
    let worst = ObjectProblem { key: &web, reason: "NotReady", message: "2/3 replicas ready" };
    let one = ConditionInputs { ready: 2, worst: Some(worst), ..well(Stage::Steady) };
    says(&one, ConditionKind::Ready, False, "NotReady", "Deployment shop/web: 2/3 replicas ready");
    let three = ConditionInputs { ready: 0, ..one };
    let message = "Deployment shop/web: 2/3 replicas ready (and 2 more)";
    says(&three, ConditionKind::Ready, False, "NotReady", message);
    // All counts are right, but they are those of the deployment object before.
    let unwritten = "not everything of this deployment object is written yet";
    for stage in [Stage::Fetch, Stage::Apply, Stage::Prune, Stage::Settle, Stage::Stopped] {
        says(&well(stage), ConditionKind::Ready, False, "NotApplied", unwritten);
    }
    says(&well(Stage::Remove), ConditionKind::Ready, False, "Removing", "the stack is being removed");
}

#[test]
fn f7_drifted_lasts_until_it_is_put_back_and_contested_names_the_rival() {
    let (web, map) = (key("apps/Deployment/shop/web"), key("/ConfigMap/shop/settings"));
    let changed = ConditionInputs { drifted: &[&web, &map], ..well(Stage::Steady) };
    let message = "Deployment shop/web: changed by others, not put back yet (and 1 more)";
    says(&changed, ConditionKind::Drifted, True, "Changed", message);
    let refusal = [ObjectProblem { key: &map, reason: "Forbidden", message: "the quota is used up" }];
    let stuck = ConditionInputs { drifted: &[&map], failures: &refusal, ..well(Stage::Steady) };
    let message = "ConfigMap shop/settings: cannot be put back: the quota is used up";
    says(&stuck, ConditionKind::Drifted, True, "Forbidden", message);
    says(&stuck, ConditionKind::Applied, True, "Applied", "everything is written");

    let fields = [".spec.replicas".to_owned()];
    let fight = Contest { key: &web, manager: Some("kubectl-edit"), fields: &fields, times: 12 };
    let contested = ConditionInputs { contested: &[fight], ..well(Stage::Steady) };
    let message = "Deployment shop/web: kubectl-edit changes .spec.replicas (12 times in the last minute)";
    says(&contested, ConditionKind::Contested, True, "FieldsContested", message);
    let many: Vec<String> = (0..9).map(|number| format!(".data.k{number}")).collect();
    let fight = Contest { key: &map, manager: None, fields: &many, times: 1 };
    let contested = ConditionInputs { contested: &[fight], ..well(Stage::Steady) };
    let message = "ConfigMap shop/settings: somebody changes \
                   .data.k0, .data.k1, .data.k2, .data.k3, .data.k4 (and 4 more) (once in the last minute)";
    says(&contested, ConditionKind::Contested, True, "FieldsContested", message);
}

#[test]
fn f5_the_time_changes_with_the_status_and_with_nothing_else() {
    let web = key("apps/Deployment/shop/web");
    let first = conditions(&well(Stage::Steady));
    let later = NOW + SignedDuration::from_secs(60);
    let worst = |message| Some(ObjectProblem { key: &web, reason: "NotReady", message });
    let second = conditions(&ConditionInputs {
        previous: &first,
        sequence: SequenceId(8),
        ready: 2,
        worst: worst("1/3 replicas ready"),
        now: later,
        ..well(Stage::Steady)
    });
    let third = conditions(&ConditionInputs {
        previous: &second,
        sequence: SequenceId(8),
        ready: 2,
        worst: worst("2/3 replicas ready"),
        now: later + SignedDuration::from_secs(60),
        ..well(Stage::Steady)
    });
    assert_ne!(second[2].message, third[2].message);
    for condition in third {
        let since = if condition.kind == ConditionKind::Ready { later } else { NOW };
        assert_eq!((condition.since, condition.sequence_id), (since, SequenceId(8)), "{}", condition.kind);
    }
}
