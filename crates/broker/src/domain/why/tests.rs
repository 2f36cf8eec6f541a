//! A table of cases: what is known, and the hop and cause that follow from it.

use brokkr_api::agents::AgentStatus;
use brokkr_api::grants::ProjectGrant;
use brokkr_api::ids::Checksum;
use brokkr_api::report::ObjectNote;
use brokkr_api::{AgentId, StackId};
use jiff::Timestamp;

use super::super::facts::{ExplicitTarget, ObjectFacts, SelectorTarget, SessionFacts};
use super::super::labels::Label;
use super::misses::NEAR_MISSES;
use super::*;

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn agent() -> AgentFacts {
    AgentFacts {
        id: AgentId::generate(),
        name: "shop-1".into(),
        status: AgentStatus::Active,
        labels: [Label::new("env", "prod"), Label::new("region", "us")].into_iter().collect(),
        labels_changed_at: second(0),
        public_key: [0; 32],
        session: SessionFacts::default(),
        new_key_wanted: false,
        holds: Vec::new(),
        holds_digest: Checksum::of(b""),
    }
}

fn stack(selectors: &[&str]) -> StackFacts {
    let object = ObjectFacts {
        sequence_id: SequenceId(7),
        checksum: Checksum::of(b""),
        parsed_digest: Checksum::of(b""),
        is_deletion_marker: false,
        keeps_resources: false,
        resources: 1,
        published_at: second(100),
    };
    let mut stack =
        StackFacts::new("default".into(), StackId::generate(), "web".into()).with_newest(Some(object));
    stack.selectors = selectors
        .iter()
        .map(|text| SelectorTarget { selector: text.parse().unwrap(), since: second(1) })
        .collect();
    stack
}

fn report(sequence: i64, transition: Transition) -> LastReport {
    LastReport {
        sequence_id: SequenceId(sequence),
        transition,
        reason: String::new(),
        message: String::new(),
        objects: Vec::new(),
        hops: Hops { fetched: Some(second(101)), verified: Some(second(102)), ..Hops::default() },
        conditions: Vec::new(),
        ready: 1,
        total: 2,
    }
}

fn seen(presence: Presence) -> Seen {
    let (poll_seconds, refused, hold) = (30, None, None);
    Seen { presence, last_seen: Some(second(1000)), poll_seconds, refused, hold, now: second(1010) }
}

fn told(agent: &AgentFacts, stack: &StackFacts, report: Option<&LastReport>, seen: &Seen) -> Verdict {
    why(&Case { agent, stack, report, seen, past: Past::default() })
}

fn prune_pending(reason: &str) -> Condition {
    Condition {
        kind: ConditionKind::PrunePending,
        status: ConditionStatus::True,
        reason: reason.into(),
        message: "60 of 100 objects would go".into(),
        sequence_id: SequenceId(7),
        since: second(1),
    }
}

#[test]
fn g3_each_cause_has_its_hop() {
    let inactive = AgentFacts { status: AgentStatus::Inactive, ..agent() };
    let tied = AgentFacts { session: SessionFacts { tied: true, ..SessionFacts::default() }, ..agent() };
    let prod = stack(&["env=prod"]);
    let empty = stack(&["env=prod"]).with_newest(None);
    let holder = agent().holding(vec![prod.id]);
    let mut gone = prod.clone();
    gone.deleted = true;
    let failed_early = LastReport { hops: Hops::default(), ..report(7, Transition::Failed) };
    let approving =
        LastReport { conditions: vec![prune_pending("ApprovalNeeded")], ..report(7, Transition::Healthy) };
    let waiting =
        LastReport { conditions: vec![prune_pending("Finalizer")], ..report(7, Transition::Applied) };
    let elsewhere = stack(&["env=dev"]);
    let holder_elsewhere = agent().holding(vec![elsewhere.id]);
    let fresh = Presence::Fresh;
    type Case<'a> =
        (&'a str, &'a AgentFacts, &'a StackFacts, Option<LastReport>, Presence, State, Option<(Hop, Cause)>);
    let a = agent();
    let cases: Vec<Case<'_>> = vec![
        ("healthy", &a, &prod, Some(report(7, Transition::Healthy)), fresh, State::Healthy, None),
        (
            "healthy and late",
            &a,
            &prod,
            Some(report(7, Transition::Healthy)),
            Presence::Late,
            State::Healthy,
            None,
        ),
        (
            "healthy once",
            &a,
            &prod,
            Some(report(7, Transition::Healthy)),
            Presence::Silent,
            State::Healthy,
            Some((Hop::Reported, Cause::AgentSilent)),
        ),
        (
            "nothing submitted",
            &a,
            &empty,
            None,
            fresh,
            State::Removed,
            Some((Hop::Published, Cause::NothingSubmitted)),
        ),
        (
            "not targeted",
            &a,
            &elsewhere,
            None,
            fresh,
            State::Removed,
            Some((Hop::Targeted, Cause::NotTargeted)),
        ),
        (
            "inactive",
            &inactive,
            &prod,
            None,
            fresh,
            State::Pending,
            Some((Hop::Fetched, Cause::AgentInactive)),
        ),
        ("tied", &tied, &prod, None, fresh, State::Pending, Some((Hop::Fetched, Cause::SessionTied))),
        (
            "never seen",
            &a,
            &prod,
            None,
            Presence::Never,
            State::Pending,
            Some((Hop::Fetched, Cause::AgentNeverSeen)),
        ),
        (
            "silent",
            &a,
            &prod,
            None,
            Presence::Silent,
            State::Pending,
            Some((Hop::Fetched, Cause::AgentSilent)),
        ),
        ("late", &a, &prod, None, Presence::Late, State::Pending, Some((Hop::Fetched, Cause::AgentLate))),
        (
            "not yet",
            &a,
            &prod,
            Some(report(6, Transition::Healthy)),
            fresh,
            State::Pending,
            Some((Hop::Fetched, Cause::NotReportedYet)),
        ),
        (
            "removed, and back",
            &a,
            &prod,
            Some(report(7, Transition::Removed)),
            fresh,
            State::Pending,
            Some((Hop::Fetched, Cause::NotReportedYet)),
        ),
        (
            "refused content",
            &a,
            &prod,
            Some(failed_early),
            fresh,
            State::Failed,
            Some((Hop::Fetched, Cause::Failed)),
        ),
        (
            "refused by the API server",
            &a,
            &prod,
            Some(report(7, Transition::Failed)),
            fresh,
            State::Failed,
            Some((Hop::Applied, Cause::Failed)),
        ),
        (
            "not ready",
            &a,
            &prod,
            Some(report(7, Transition::Applied)),
            fresh,
            State::Applied,
            Some((Hop::Healthy, Cause::NotReady)),
        ),
        (
            "degraded",
            &a,
            &prod,
            Some(report(7, Transition::Degraded)),
            fresh,
            State::Degraded,
            Some((Hop::Healthy, Cause::Degraded)),
        ),
        (
            "approval",
            &a,
            &prod,
            Some(approving),
            fresh,
            State::Healthy,
            Some((Hop::Pruned, Cause::AwaitsApproval)),
        ),
        ("finalizer", &a, &prod, Some(waiting), fresh, State::Applied, Some((Hop::Pruned, Cause::Blocked))),
        (
            "blocked",
            &a,
            &prod,
            Some(report(7, Transition::Blocked)),
            fresh,
            State::Blocked,
            Some((Hop::Pruned, Cause::Blocked)),
        ),
        ("deleted, held", &holder, &gone, None, fresh, State::Removing, Some((Hop::Pruned, Cause::Removing))),
        (
            "deleted, held by a silent one",
            &holder,
            &gone,
            None,
            Presence::Silent,
            State::Removing,
            Some((Hop::Fetched, Cause::AgentSilent)),
        ),
        (
            "deleted, blocked",
            &holder,
            &gone,
            Some(report(7, Transition::Blocked)),
            fresh,
            State::Blocked,
            Some((Hop::Pruned, Cause::Blocked)),
        ),
        ("deleted, gone", &a, &gone, Some(report(7, Transition::Removed)), fresh, State::Removed, None),
        (
            "untargeted, held",
            &holder_elsewhere,
            &elsewhere,
            Some(report(7, Transition::Healthy)),
            fresh,
            State::Removing,
            Some((Hop::Pruned, Cause::Removing)),
        ),
    ];
    for (name, agent, stack, report, presence, state, expected) in cases {
        let verdict = told(agent, stack, report.as_ref(), &seen(presence));
        assert_eq!(verdict.state, state, "{name}");
        let got = verdict.broken.as_ref().map(|broken| (broken.hop, broken.cause));
        assert_eq!(got, expected, "{name}: {verdict:?}");
        let complete =
            verdict.broken.is_none_or(|broken| !broken.message.is_empty() && !broken.next.is_empty());
        assert!(complete && !verdict.evidence.is_empty(), "{name}");
    }
}

#[test]
fn g3_the_nearest_selector_is_named_with_the_label_by_which_it_misses() {
    let stack = stack(&["env=dev,region=eu,gpu", "env=prod,region=eu", "env=dev,region=eu"]);
    let verdict = told(&agent(), &stack, None, &seen(Presence::Fresh));
    assert_eq!(
        verdict.evidence[0],
        "selector env=prod,region=eu misses: it wants region=eu, the agent has region=us"
    );
    assert_eq!(verdict.evidence.len(), NEAR_MISSES + 1);
    let mut named = super::tests::stack(&[]);
    let evidence =
        |stack: &StackFacts| told(&agent(), stack, None, &seen(Presence::Fresh)).evidence[0].clone();
    assert_eq!(evidence(&named), "the stack targets nobody");
    named.targets.push(ExplicitTarget { agent: AgentId::generate(), since: second(1) });
    assert_eq!(evidence(&named), "the stack names 1 other agents, and selects none");
}

#[test]
fn g3_what_the_objects_say_comes_first() {
    let mut failed = report(7, Transition::Failed);
    failed.message = "1 object was refused".into();
    failed.objects = vec![ObjectNote {
        object: "Deployment shop/web".into(),
        reason: "FieldImmutable".into(),
        message: "spec.selector".into(),
    }];
    let verdict = told(&agent(), &stack(&["*"]), Some(&failed), &seen(Presence::Fresh));
    assert_eq!(verdict.evidence[0], "Deployment shop/web: FieldImmutable: spec.selector");
    assert_eq!(verdict.broken.unwrap().message, "1 object was refused");
}

fn noted(transition: Transition, reason: &str, object: &str, message: &str) -> LastReport {
    LastReport {
        reason: reason.into(),
        message: format!("{object}: {message}"),
        objects: vec![ObjectNote { object: object.into(), reason: reason.into(), message: message.into() }],
        ..report(7, transition)
    }
}

/// What is broken, with a version to go back to.
fn broken(report: &LastReport) -> Broken {
    let (agent, stack, seen) = (agent(), stack(&["*"]), seen(Presence::Fresh));
    let past = Past { earlier: true, ahead: None };
    let verdict = why(&Case { agent: &agent, stack: &stack, report: Some(report), seen: &seen, past });
    verdict.broken.expect("something is broken")
}

#[test]
fn g3_what_the_agent_reports_becomes_a_cause_with_its_hop_and_a_command() {
    use Transition::{Blocked, Degraded, Failed};
    let back = Some("brokkr rollback web");
    let table = [
        (Failed, "UnknownKind", "deployment object 7", Hop::Applied, Cause::UnknownKind, None),
        (
            Failed,
            "NamespaceNotFound",
            "ConfigMap shop/a",
            Hop::Applied,
            Cause::NamespaceMissing,
            Some("kubectl create namespace shop"),
        ),
        (Failed, "Immutable", "Job shop/a", Hop::Applied, Cause::ImmutableField, back),
        (Failed, "QuotaExceeded", "ConfigMap shop/a", Hop::Applied, Cause::QuotaExceeded, back),
        (Degraded, "QuotaExceeded", "Deployment shop/a", Hop::Healthy, Cause::QuotaExceeded, back),
        (Failed, "WebhookDenied", "ConfigMap shop/a", Hop::Applied, Cause::RefusedByWebhook, back),
        (Failed, "Unreadable", "deployment object 7", Hop::Verified, Cause::Failed, back),
        (Failed, "ChecksumMismatch", "deployment object 7", Hop::Fetched, Cause::Failed, back),
        (Degraded, "ImagePullBackOff", "Deployment shop/a", Hop::Healthy, Cause::ImageNotPulled, back),
        (Degraded, "CrashLoopBackOff", "Deployment shop/a", Hop::Healthy, Cause::CrashLoop, back),
        (Degraded, "Unschedulable", "Deployment shop/a", Hop::Healthy, Cause::Unschedulable, back),
        (Blocked, "NotGranted", "ConfigMap shop/a", Hop::Applied, Cause::NotGranted, None),
        (
            Blocked,
            "Finalizer",
            "ConfigMap shop/a",
            Hop::Pruned,
            Cause::Finalizer,
            Some(r#"kubectl -n shop patch configmap a --type=merge -p '{"metadata":{"finalizers":null}}'"#),
        ),
    ];
    for (transition, reason, object, hop, cause, command) in table {
        let broken = broken(&noted(transition, reason, object, "it may not"));
        assert_eq!((broken.hop, broken.cause), (hop, cause), "{reason}: {broken:?}");
        assert_eq!(broken.command.as_deref(), command, "{reason}");
    }
    let waits = LastReport {
        reason: "PruneNeedsApproval".into(),
        message: "would delete 60 of 100 objects".into(),
        ..report(7, Blocked)
    };
    assert_eq!(
        broken(&waits).command.as_deref(),
        Some("brokkr approve web --expect 60 --agent shop-1"),
        "the number that the agent told"
    );
}

#[test]
fn an_agent_puts_no_words_into_a_shell() {
    for object in ["ConfigMap a;reboot/b", "ConfigMap $(id)/b", "ConfigMap -n/b", "ConfigMap shop/b\nid"] {
        for reason in ["NamespaceNotFound", "Finalizer"] {
            let transition = if reason == "Finalizer" { Transition::Blocked } else { Transition::Failed };
            assert_eq!(broken(&noted(transition, reason, object, "")).command, None, "{object}");
        }
    }
}

#[test]
fn g3_a_fight_over_a_field_is_told_though_every_hop_is_passed() {
    let contested = Condition {
        kind: ConditionKind::Contested,
        message: "Deployment shop/web: kubectl-edit changes .spec.replicas (12 times in the last minute)"
            .into(),
        ..prune_pending("FieldsContested")
    };
    let fought = LastReport { conditions: vec![contested], ..report(7, Transition::Repaired) };
    let broken = broken(&fought);
    assert_eq!((broken.hop, broken.cause), (Hop::Applied, Cause::Contested));
    assert!(broken.next.ends_with("brokkr.io/yield: spec.replicas"), "{}", broken.next);
}

#[test]
fn g3_after_a_restore_that_is_what_is_told_first() {
    let (agent, stack) = (agent(), stack(&["*"]));
    let held = Seen { hold: Some("the database has gone back".into()), ..seen(Presence::Silent) };
    let healthy = report(7, Transition::Healthy);
    let ahead = Past { earlier: true, ahead: Some(SequenceId(9)) };
    let ask = |seen: &Seen, past| {
        let case = Case { agent: &agent, stack: &stack, report: Some(&healthy), seen, past };
        why(&case).broken.map(|broken| (broken.hop, broken.cause, broken.command.unwrap_or_default()))
    };
    let raise = "brokkr-broker epoch raise".to_owned();
    assert_eq!(ask(&held, ahead), Some((Hop::Released, Cause::OnHold, raise)));
    let settle = "brokkr admin settle web --publish-restored".to_owned();
    assert_eq!(ask(&seen(Presence::Fresh), ahead), Some((Hop::Fetched, Cause::AgentAhead, settle)));
    let settled = Past { ahead: Some(SequenceId(7)), ..ahead };
    assert_eq!(ask(&seen(Presence::Fresh), settled), None);
}

#[test]
fn g3_who_is_refused_explains_an_agent_that_stays_away_and_not_one_that_is_well() {
    let (agent, stack) = (agent(), stack(&["*"]));
    let refused = |at| Some(Refused { at: second(at), because: "its signature fits no key".into() });
    let ask = |seen: &Seen| told(&agent, &stack, None, seen).broken.map(|broken| broken.cause);
    // Within its polling interval, anybody may have come in its name.
    let well = Seen { refused: refused(1005), ..seen(Presence::Fresh) };
    assert_eq!(ask(&well), Some(Cause::NotReportedYet));
    let evidence = told(&agent, &stack, None, &well).evidence;
    assert!(evidence.iter().any(|line| line.contains("was refused 5 s ago")), "{evidence:?}");
    let away = Seen { now: second(1050), refused: refused(1040), ..seen(Presence::Fresh) };
    assert_eq!(ask(&away), Some(Cause::AgentRefused));
    let never = Seen { last_seen: None, presence: Presence::Never, ..away.clone() };
    assert_eq!(ask(&never), Some(Cause::AgentRefused));
    let long_ago = Seen { now: second(9000), ..away };
    assert_eq!(ask(&long_ago), Some(Cause::NotReportedYet));
}

#[test]
fn g3_the_label_that_is_missing_is_given_as_a_command() {
    let command = |selectors: &[&str]| {
        told(&agent(), &stack(selectors), None, &seen(Presence::Fresh)).broken.unwrap().command
    };
    assert_eq!(command(&["env=prod,region in (eu,asia)"]).unwrap(), "brokkr agent label shop-1 region=asia");
    assert_eq!(command(&["env=dev,!region"]).unwrap(), "brokkr agent label shop-1 env=dev region-");
    assert_eq!(command(&["gpu"]), None, "which value, only people know");
    assert_eq!(command(&[]), None);
}

#[test]
fn a_grant_is_widened_by_what_is_lacking_and_nothing_else() {
    let grant = ProjectGrant {
        id: brokkr_api::GrantId::generate(),
        name: "shop".parse().unwrap(),
        project: "shop".into(),
        selector: "env in (prod,dev)".parse().unwrap(),
        namespaces: vec!["shop".into()],
        kinds: vec!["*".into()],
        account: "shop/brokkr-shop".into(),
        created_by: "ana".into(),
        created_at: second(1),
        updated_at: second(1),
    };
    let lacks = |what: &str| {
        let message = format!("the project's grant on this agent does not cover {what}");
        broken(&noted(Transition::Blocked, "NotGranted", "ConfigMap x/a", &message))
    };
    let grants = [grant];
    assert_eq!(
        widened_grant(&lacks("the namespace extra"), &agent(), &grants).unwrap(),
        "brokkr grant set shop --to-project shop -l 'env in (dev,prod)' --namespace shop --namespace extra --kind '*' \
         --account shop/brokkr-shop"
    );
    assert!(widened_grant(&lacks("objects outside namespaces"), &agent(), &grants).is_none());
    assert!(widened_grant(&lacks("the namespace $(id)"), &agent(), &grants).is_none());
}
