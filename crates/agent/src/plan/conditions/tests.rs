//! Tables of inputs and the resulting conditions.

use brokkr_api::report::ConditionStatus::{False, True, Unknown};
use jiff::SignedDuration;

use super::*;
use crate::model::Rival;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

/// Returns the inputs of a healthy stack with three resources.
fn healthy(stage: Stage) -> ConditionInputs<'static> {
    ConditionInputs {
        previous: &[],
        sequence: SequenceId(7),
        content: ContentState::Read,
        stage,
        failures: &[],
        ready: 3,
        total: 3,
        worst: None,
        reported: None,
        drifted: &[],
        contested: None,
        prune: None,
        unready_wave: None,
        suspensions: &[],
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
    assert_eq!(
        (found.status, found.reason.code(), found.message.to_string().as_str()),
        (status, reason, message)
    );
}

#[test]
fn f5_all_seven_conditions_are_present_in_order_with_a_reason_and_a_message() {
    let stages = [
        Stage::Announce,
        Stage::Fetch,
        Stage::Inspect,
        Stage::Record,
        Stage::Prerequisites,
        Stage::Validate,
        Stage::Apply,
        Stage::Prune,
        Stage::Finish,
        Stage::Suspended,
        Stage::Steady,
        Stage::Stopped,
        Stage::Remove,
        Stage::Done,
    ];
    let text = Message::new("m");
    let nothing = Problem { reason: &Reason::None, message: &text };
    let broken = key("apps/Deployment/shop/web");
    let nameless = ObjectProblem { key: &broken, reason: &Reason::None, message: &text };
    let fight = Contested { key: &broken, rounds: 0, rival: None };
    for stage in stages {
        for content in [
            ContentState::Read,
            ContentState::NotYet(None),
            ContentState::NotYet(Some(nothing)),
            ContentState::Refused(nothing),
        ] {
            for view in [
                ConditionInputs { content, ..healthy(stage) },
                ConditionInputs {
                    content,
                    failures: &[nameless],
                    worst: Some(nameless),
                    drifted: &[&broken],
                    contested: Some((&fight, 1)),
                    prune: Some(nothing),
                    ..healthy(stage)
                },
            ] {
                let all = conditions(&view);
                assert!(all.iter().map(|condition| condition.kind.clone()).eq(ConditionKind::KNOWN));
                for condition in all {
                    let word = condition.reason.code();
                    let camel = word.chars().all(|c| c.is_ascii_alphanumeric())
                        && word.starts_with(|c: char| c.is_ascii_uppercase());
                    assert!(camel, "{stage:?}: {condition:?}");
                    assert!(!condition.message.is_empty(), "{stage:?}: {condition:?}");
                    assert_eq!((condition.sequence_id, condition.since), (SequenceId(7), NOW));
                }
            }
        }
    }
}

#[test]
fn f5_the_conditions_of_a_healthy_stack() {
    let view = healthy(Stage::Steady);
    says(&view, ConditionKind::Accepted, True, "Valid", "the content is valid and accepted");
    says(&view, ConditionKind::Applied, True, "Applied", "all objects are applied");
    says(&view, ConditionKind::Ready, True, "Ready", "3/3 resources ready");
    says(&view, ConditionKind::Drifted, False, "NoDrift", "no drift");
    says(&view, ConditionKind::Contested, False, "Uncontested", "no contested fields");
    says(&view, ConditionKind::PrunePending, False, "NothingToPrune", "no prune is pending");
}

#[test]
fn f5_accepted_shows_whether_the_content_is_valid() {
    let unread = ConditionInputs { content: ContentState::NotYet(None), ..healthy(Stage::Fetch) };
    says(&unread, ConditionKind::Accepted, Unknown, "NotFetched", "fetching the content");
    let words = Message::new("connection refused");
    let away = Problem { reason: &Reason::FetchFailed, message: &words };
    let unreachable = ConditionInputs { content: ContentState::NotYet(Some(away)), ..healthy(Stage::Fetch) };
    says(&unreachable, ConditionKind::Accepted, Unknown, "FetchFailed", "connection refused");
    let words = Message::new("cannot be parsed");
    let why = Problem { reason: &Reason::Unreadable, message: &words };
    let refused = ConditionInputs { content: ContentState::Refused(why), ..healthy(Stage::Stopped) };
    says(&refused, ConditionKind::Accepted, False, "Unreadable", "cannot be parsed");
    let stays = "the content was refused; the previous version stays applied";
    says(&refused, ConditionKind::Applied, False, "Unreadable", stays);
    says(&healthy(Stage::Remove), ConditionKind::Accepted, True, "Removal", "the removal is accepted");
}

#[test]
fn f5_applied_shows_the_stage_and_the_failure() {
    for (stage, reason) in [
        (Stage::Fetch, "Fetching"),
        (Stage::Prerequisites, "WaitingForPrerequisites"),
        (Stage::Validate, "Validating"),
        (Stage::Apply, "Applying"),
        (Stage::Prune, "Pruning"),
        (Stage::Finish, "Settling"),
        (Stage::Stopped, "Stopped"),
        (Stage::Remove, "Removing"),
    ] {
        let all = conditions(&healthy(stage));
        assert_eq!((all[1].status, all[1].reason.code()), (False, reason), "{stage:?}");
    }
    let (web, job) = (key("apps/Deployment/shop/web"), key("batch/Job/shop/seed"));
    let immutable = Reason::Immutable { fields: vec!["spec.selector".into()] };
    let invalid = Reason::Invalid { fields: Vec::new() };
    let (words, other) = (Message::new("spec.selector cannot be changed"), Message::new("no template"));
    let failures = [
        ObjectProblem { key: &web, reason: &immutable, message: &words },
        ObjectProblem { key: &job, reason: &invalid, message: &other },
    ];
    let stopped = ConditionInputs { failures: &failures, ..healthy(Stage::Stopped) };
    let message = "Deployment shop/web: spec.selector cannot be changed (and 1 more)";
    says(&stopped, ConditionKind::Applied, False, "Immutable", message);
    let reason = Reason::PruneNeedsApproval { delete: 60, total: 100 };
    let (sentence, words) = (reason.sentence(), reason.message());
    let why = Problem { reason: &reason, message: &words };
    let pruning = ConditionInputs { prune: Some(why), ..healthy(Stage::Prune) };
    says(&pruning, ConditionKind::Applied, False, "PruneNeedsApproval", &sentence);
    says(&pruning, ConditionKind::PrunePending, True, "PruneNeedsApproval", &sentence);
}

#[test]
fn f6_a_stack_is_ready_only_after_it_is_applied_and_names_the_worst_object() {
    let web = key("apps/Deployment/shop/web");
    let words = Message::new("2/3 replicas ready");
    let worst = ObjectProblem { key: &web, reason: &Reason::NotReady, message: &words };
    let one = ConditionInputs { ready: 2, worst: Some(worst), ..healthy(Stage::Steady) };
    says(&one, ConditionKind::Ready, False, "NotReady", "Deployment shop/web: 2/3 replicas ready");
    let three = ConditionInputs { ready: 0, ..one };
    let message = "Deployment shop/web: 2/3 replicas ready (and 2 more)";
    says(&three, ConditionKind::Ready, False, "NotReady", message);
    // All counts are complete, but they belong to the previous deployment object.
    let unwritten = "not all objects of this version are applied yet";
    for stage in [Stage::Fetch, Stage::Apply, Stage::Prune, Stage::Finish, Stage::Stopped] {
        says(&healthy(stage), ConditionKind::Ready, False, "NotApplied", unwritten);
    }
    says(&healthy(Stage::Remove), ConditionKind::Ready, False, "Removing", "the stack is being removed");
}

#[test]
fn f7_drifted_lasts_until_the_repair_and_contested_names_the_rival() {
    let (web, map) = (key("apps/Deployment/shop/web"), key("/ConfigMap/shop/settings"));
    let changed = ConditionInputs { drifted: &[&web, &map], ..healthy(Stage::Steady) };
    let message = "Deployment shop/web: changed by others, not reverted yet (and 1 more)";
    says(&changed, ConditionKind::Drifted, True, "Changed", message);
    let (quota, words) = (Reason::QuotaExceeded { quota: None }, Message::new("the quota is used up"));
    let refusal = [ObjectProblem { key: &map, reason: &quota, message: &words }];
    let stuck = ConditionInputs { drifted: &[&map], failures: &refusal, ..healthy(Stage::Steady) };
    let message = "ConfigMap shop/settings: cannot be reverted: the quota is used up";
    says(&stuck, ConditionKind::Drifted, True, "QuotaExceeded", message);
    says(&stuck, ConditionKind::Applied, True, "Applied", "all objects are applied");

    let fields = [".spec.replicas".to_owned()];
    let rival = Rival { manager: "kubectl-edit".into(), fields: fields.to_vec() };
    let fight = Contested { key: &web, rounds: 12, rival: Some(&rival) };
    let contested = ConditionInputs { contested: Some((&fight, 1)), ..healthy(Stage::Steady) };
    let message = "Deployment shop/web: kubectl-edit changes .spec.replicas (12 times in the last minute)";
    says(&contested, ConditionKind::Contested, True, "Contested", message);
    let many: Vec<String> = (0..9).map(|number| format!(".data.k{number}")).collect();
    let rival = Rival { manager: "tuner".into(), fields: many };
    let fight = Contested { key: &map, rounds: 1, rival: Some(&rival) };
    let contested = ConditionInputs { contested: Some((&fight, 1)), ..healthy(Stage::Steady) };
    let message = "ConfigMap shop/settings: tuner changes \
                   .data.k0, .data.k1, .data.k2, .data.k3, .data.k4 (and 4 more) (once in the last minute)";
    says(&contested, ConditionKind::Contested, True, "Contested", message);
}

#[test]
fn f5_the_time_changes_only_with_the_status() {
    let web = key("apps/Deployment/shop/web");
    let first = conditions(&healthy(Stage::Steady));
    let later = NOW + SignedDuration::from_secs(60);
    let (one, two) = (Message::new("1/3 replicas ready"), Message::new("2/3 replicas ready"));
    let worst = |message| Some(ObjectProblem { key: &web, reason: &Reason::NotReady, message });
    let second = conditions(&ConditionInputs {
        previous: &first,
        sequence: SequenceId(8),
        ready: 2,
        worst: worst(&one),
        now: later,
        ..healthy(Stage::Steady)
    });
    let third = conditions(&ConditionInputs {
        previous: &second,
        sequence: SequenceId(8),
        ready: 2,
        worst: worst(&two),
        now: later + SignedDuration::from_secs(60),
        ..healthy(Stage::Steady)
    });
    assert_ne!(second[2].message, third[2].message);
    for condition in third {
        let since = if condition.kind == ConditionKind::Ready { later } else { NOW };
        assert_eq!((condition.since, condition.sequence_id), (since, SequenceId(8)), "{}", condition.kind);
    }
}
