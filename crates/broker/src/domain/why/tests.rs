//! A table of cases: what is known, and the hop and cause that follow from it.

use std::sync::Arc;

use brokkr_api::agents::AgentStatus;
use brokkr_api::grants::ProjectGrant;
use brokkr_api::ids::Checksum;
use brokkr_api::reason::{ObjectRef, Uncovered};
use brokkr_api::report::ObjectNote;
use brokkr_api::why::Reach;
use brokkr_api::{AgentId, StackId};
use jiff::Timestamp;

use super::super::facts::{ExplicitTarget, ObjectFacts, SelectorTarget, SessionFacts};
use super::super::fixtures;
use super::super::grants::ProjectGrants;
use super::super::labels::Label;
use super::super::release::{EarlierTargets, Release, Widening};
use super::super::windows::Windows;
use super::misses::NEAR_MISSES;
use super::*;

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn agent() -> AgentFacts {
    let labels = [Label::new("env", "prod"), Label::new("region", "us")].into_iter().collect();
    AgentFacts { labels, labels_changed_at: second(0), ..fixtures::agent() }
}

fn stack(selectors: &[&str]) -> StackFacts {
    let object = ObjectFacts {
        sequence_id: SequenceId(7),
        checksum: Checksum::of(b""),
        parsed_digest: Checksum::of(b""),
        is_deletion_marker: false,
        keeps_resources: false,
        is_urgent: false,
        wave_wait_seconds: None,
        resources: 1,
        published_at: second(100),
    };
    let mut stack =
        StackFacts::new("default".into(), StackId::generate(), "web".into()).with_base(Some(object));
    stack.grants = Arc::new(ProjectGrants::Unlimited);
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
        reason: Reason::None,
        message: Message::default(),
        objects: Vec::new(),
        hops: Hops { fetched: Some(second(101)), verified: Some(second(102)), ..Hops::default() },
        conditions: Vec::new(),
        ready: 1,
        total: 2,
    }
}

fn seen(presence: Presence) -> AgentContact {
    let (poll_seconds, refused, hold) = (30, None, None);
    AgentContact { presence, last_seen: Some(second(1000)), poll_seconds, refused, hold, now: second(1010) }
}

fn explain(
    agent: &AgentFacts,
    stack: &StackFacts,
    report: Option<&LastReport>,
    seen: &AgentContact,
) -> Verdict {
    why(&Case { agent, stack, report, seen, past: Past::default(), rollout: None })
}

fn approval() -> Reason {
    Reason::PruneNeedsApproval { delete: 60, total: 100 }
}

fn finalizer() -> Reason {
    Reason::Finalizer { finalizers: vec!["example.com/keep".into()] }
}

fn prune_pending(reason: Reason) -> Condition {
    Condition {
        kind: ConditionKind::PrunePending,
        status: ConditionStatus::True,
        message: reason.message(),
        reason,
        sequence_id: SequenceId(7),
        since: second(1),
    }
}

#[test]
fn g3_each_cause_has_its_hop() {
    let inactive = AgentFacts { status: AgentStatus::Inactive, ..agent() };
    let duplicated =
        AgentFacts { session: SessionFacts { duplicated: true, ..SessionFacts::default() }, ..agent() };
    let prod = stack(&["env=prod"]);
    let empty = stack(&["env=prod"]).with_base(None);
    let holder = agent().holding(vec![prod.id]);
    let mut gone = prod.clone();
    gone.deleted = true;
    let failed_early = LastReport { hops: Hops::default(), ..report(7, Transition::Failed) };
    let approving =
        LastReport { conditions: vec![prune_pending(approval())], ..report(7, Transition::Healthy) };
    let waiting =
        LastReport { conditions: vec![prune_pending(finalizer())], ..report(7, Transition::Applied) };
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
        (
            "duplicated",
            &duplicated,
            &prod,
            None,
            fresh,
            State::Pending,
            Some((Hop::Fetched, Cause::SessionDuplicated)),
        ),
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
        ("finalizer", &a, &prod, Some(waiting), fresh, State::Applied, Some((Hop::Pruned, Cause::Finalizer))),
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
        let verdict = explain(agent, stack, report.as_ref(), &seen(presence));
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
    let verdict = explain(&agent(), &stack, None, &seen(Presence::Fresh));
    assert_eq!(
        verdict.evidence[0],
        "selector env=prod,region=eu does not match: it requires region=eu, but the agent has region=us"
    );
    assert_eq!(verdict.evidence.len(), NEAR_MISSES + 1);
    let mut named = super::tests::stack(&[]);
    let evidence =
        |stack: &StackFacts| explain(&agent(), stack, None, &seen(Presence::Fresh)).evidence[0].clone();
    assert_eq!(evidence(&named), "the stack has no targets");
    named.targets.push(ExplicitTarget { agent: AgentId::generate(), since: second(1) });
    assert_eq!(evidence(&named), "the stack targets 1 other agents by name, and none by selector");
}

#[test]
fn g3_messages_of_objects_come_first_in_the_evidence() {
    let mut failed = report(7, Transition::Failed);
    failed.message = "1 object was refused".into();
    failed.objects = vec![ObjectNote {
        object: object("Deployment", Some("shop"), "web"),
        reason: Reason::Other("MoonPhase".into()),
        message: "full".into(),
    }];
    let verdict = explain(&agent(), &stack(&["*"]), Some(&failed), &seen(Presence::Fresh));
    assert_eq!(verdict.evidence[0], "Deployment shop/web: MoonPhase: full");
    assert_eq!(verdict.broken.unwrap().message, Message::from("1 object was refused"));
}

fn object(kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef {
        kind: kind.into(),
        namespace: namespace.map(Into::into),
        name: name.into(),
        ..ObjectRef::default()
    }
}

fn noted(transition: Transition, reason: Reason, object: ObjectRef) -> LastReport {
    let message = reason.message();
    LastReport {
        message: message.clone(),
        objects: vec![ObjectNote { object, reason: reason.clone(), message }],
        reason,
        ..report(7, transition)
    }
}

/// Explains a report of a stack that has an earlier version.
fn broken(report: &LastReport) -> Broken {
    let (agent, stack, seen) = (agent(), stack(&["*"]), seen(Presence::Fresh));
    let past = Past { earlier: true, targeted: 1, failing: 1, ..Past::default() };
    let verdict =
        why(&Case { agent: &agent, stack: &stack, report: Some(report), seen: &seen, past, rollout: None });
    verdict.broken.expect("something is broken")
}

#[test]
fn g3_a_reported_reason_becomes_a_cause_with_its_hop_and_a_command() {
    use Transition::{Blocked, Degraded, Failed};
    let back = Some("brokkr rollback web");
    let uncovered = Reason::NotCovered(Uncovered::Namespace("shop".into()));
    let (expected, found) = (Checksum::of(b"a"), Checksum::of(b"b"));
    let table = [
        (Failed, Reason::UnknownKind { kind: "v1 Widget".into() }, Hop::Applied, Cause::UnknownKind, None),
        (
            Failed,
            Reason::NamespaceNotFound { namespace: Some("shop".into()) },
            Hop::Applied,
            Cause::NamespaceMissing,
            Some("kubectl create namespace shop"),
        ),
        (Failed, Reason::Immutable { fields: Vec::new() }, Hop::Applied, Cause::ImmutableField, back),
        (Failed, Reason::QuotaExceeded { quota: None }, Hop::Applied, Cause::QuotaExceeded, back),
        (Degraded, Reason::QuotaExceeded { quota: None }, Hop::Healthy, Cause::QuotaExceeded, back),
        (Failed, Reason::WebhookDenied { webhook: None }, Hop::Applied, Cause::RefusedByWebhook, back),
        (Failed, Reason::Unreadable, Hop::Verified, Cause::Failed, back),
        (Failed, Reason::ChecksumMismatch { expected, found }, Hop::Fetched, Cause::Failed, back),
        (Degraded, Reason::ImagePullBackOff, Hop::Healthy, Cause::ImageNotPulled, back),
        (Degraded, Reason::CrashLoopBackOff, Hop::Healthy, Cause::CrashLoop, back),
        (Degraded, Reason::Unschedulable, Hop::Healthy, Cause::Unschedulable, back),
        (Blocked, uncovered, Hop::Applied, Cause::NotGranted, None),
        (
            Blocked,
            finalizer(),
            Hop::Pruned,
            Cause::Finalizer,
            Some(r#"kubectl -n shop patch configmap a --type=merge -p '{"metadata":{"finalizers":null}}'"#),
        ),
        (
            Blocked,
            approval(),
            Hop::Pruned,
            Cause::AwaitsApproval,
            Some("brokkr stack approve web --expect 60 --agent shop-1"),
        ),
    ];
    for (transition, reason, hop, cause, command) in table {
        let broken = broken(&noted(transition, reason.clone(), object("ConfigMap", Some("shop"), "a")));
        assert_eq!((broken.hop, broken.cause), (hop, cause), "{reason:?}: {broken:?}");
        assert_eq!(broken.command.as_ref().map(|command| command.line.as_str()), command, "{reason:?}");
        assert!(broken.command.is_none_or(|command| command.check_first.is_some()), "{reason:?}");
    }
}

#[test]
fn g3_a_rollback_is_suggested_only_if_every_agent_of_the_stack_has_a_problem() {
    let (agent, stack) = (agent(), stack(&["*"]));
    let ask = |report: &LastReport, past: Past| {
        let seen = seen(Presence::Fresh);
        why(&Case { agent: &agent, stack: &stack, report: Some(report), seen: &seen, past, rollout: None })
            .broken
            .unwrap()
    };
    let object = || object("Deployment", Some("shop"), "web");
    let crash = noted(Transition::Degraded, Reason::CrashLoopBackOff, object());
    let everywhere = Past { earlier: true, targeted: 12, failing: 12, ..Past::default() };
    let command = ask(&crash, everywhere).command.unwrap();
    assert_eq!((command.line.as_str(), command.reach), ("brokkr rollback web", Reach::Stack { agents: 12 }));
    let here = ask(&crash, Past { failing: 2, ..everywhere });
    assert_eq!(here.command, None);
    assert!(
        here.next.ends_with("a rollback would also change agents without a problem (10 of 12)"),
        "{}",
        here.next
    );
    // A blocked agent is not counted as failing, but this one has the problem.
    let blocked = noted(Transition::Blocked, Reason::WebhookDenied { webhook: None }, object());
    assert!(ask(&blocked, Past { failing: 11, ..everywhere }).command.is_some());
    assert!(ask(&blocked, Past { failing: 10, ..everywhere }).command.is_none());
    let first = ask(&crash, Past { earlier: false, ..everywhere });
    assert_eq!((first.command, first.next.ends_with(", and apply again")), (None, true));
    assert_eq!(ask(&crash, Past { targeted: 0, failing: 0, ..everywhere }).command, None);
}

#[test]
fn g3_a_removal_that_is_refused_suggests_no_rollback() {
    let mut agent = agent();
    let stack = stack(&["env=other"]);
    agent.hold(vec![stack.id], Vec::new());
    let refused = noted(
        Transition::Blocked,
        Reason::WebhookDenied { webhook: None },
        object("Deployment", Some("shop"), "web"),
    );
    let past = Past { earlier: true, targeted: 1, failing: 1, ..Past::default() };
    let seen = seen(Presence::Fresh);
    let case =
        Case { agent: &agent, stack: &stack, report: Some(&refused), seen: &seen, past, rollout: None };
    let broken = why(&case).broken.unwrap();
    assert_eq!((broken.cause, broken.command), (Cause::RefusedByWebhook, None));
}

#[test]
fn a_transition_of_a_newer_agent_is_shown_and_not_interpreted() {
    let newer = LastReport { message: "asleep".into(), ..report(7, Transition::Other("suspended".into())) };
    let verdict = explain(&agent(), &stack(&["*"]), Some(&newer), &seen(Presence::Fresh));
    assert_eq!(verdict.state, State::Unknown);
    let broken = verdict.broken.unwrap();
    assert_eq!((broken.cause, broken.message.to_string().as_str()), (Cause::Other, "asleep"));
}

#[test]
fn an_agent_cannot_inject_text_into_a_shell() {
    for (namespace, name) in
        [("a;reboot", "b"), ("$(id)", "b"), ("-n", "b"), ("shop\nid", "b"), ("shop", "b c")]
    {
        let configmap = || object("ConfigMap", Some(namespace), name);
        assert_eq!(
            broken(&noted(Transition::Blocked, finalizer(), configmap())).command,
            None,
            "{namespace}"
        );
        let missing = Reason::NamespaceNotFound { namespace: None };
        let command = broken(&noted(Transition::Failed, missing, configmap())).command;
        assert_eq!(command.is_some(), namespace == "shop", "{namespace}");
    }
}

#[test]
fn g3_a_contested_field_is_reported_although_every_hop_is_passed() {
    let contested = Condition {
        kind: ConditionKind::Contested,
        ..prune_pending(Reason::Contested {
            manager: Some("kubectl-edit".into()),
            fields: vec![".spec.replicas".into()],
            repairs: 12,
        })
    };
    let fought = LastReport { conditions: vec![contested], ..report(7, Transition::Repaired) };
    let broken = broken(&fought);
    assert_eq!((broken.hop, broken.cause), (Hop::Applied, Cause::Contested));
    assert!(broken.next.ends_with("brokkr.io/yield: spec.replicas"), "{}", broken.next);
}

#[test]
fn g3_after_a_restore_the_hold_is_reported_first() {
    let (agent, stack) = (agent(), stack(&["*"]));
    let held = AgentContact { hold: Some("the database has gone back".into()), ..seen(Presence::Silent) };
    let healthy = report(7, Transition::Healthy);
    let ahead = Past { earlier: true, ahead: Some(SequenceId(9)), ..Past::default() };
    let ask = |seen: &AgentContact, past| {
        let case = Case { agent: &agent, stack: &stack, report: Some(&healthy), seen, past, rollout: None };
        why(&case).broken.map(|broken| {
            (broken.hop, broken.cause, broken.command.map(|command| command.line).unwrap_or_default())
        })
    };
    let raise = "brokkr-broker epoch raise".to_owned();
    assert_eq!(ask(&held, ahead), Some((Hop::Released, Cause::OnHold, raise)));
    let settle = "brokkr admin settle web --publish-restored".to_owned();
    assert_eq!(ask(&seen(Presence::Fresh), ahead), Some((Hop::Fetched, Cause::AgentAhead, settle)));
    let settled = Past { ahead: Some(SequenceId(7)), ..ahead };
    assert_eq!(ask(&seen(Presence::Fresh), settled), None);
}

#[test]
fn g3_a_refusal_explains_an_agent_that_misses_polls_and_not_one_that_is_well() {
    let (agent, stack) = (agent(), stack(&["*"]));
    let refused = |at| Some(Refused { at: second(at), because: "its signature matches no key".into() });
    let ask = |seen: &AgentContact| explain(&agent, &stack, None, seen).broken.map(|broken| broken.cause);
    // The agent polled within its interval, so another process may have used its name.
    let well = AgentContact { refused: refused(1005), ..seen(Presence::Fresh) };
    assert_eq!(ask(&well), Some(Cause::NotReportedYet));
    let evidence = explain(&agent, &stack, None, &well).evidence;
    assert!(evidence.iter().any(|line| line.contains("was refused 5 s ago")), "{evidence:?}");
    let away = AgentContact { now: second(1050), refused: refused(1040), ..seen(Presence::Fresh) };
    assert_eq!(ask(&away), Some(Cause::AgentRefused));
    let never = AgentContact { last_seen: None, presence: Presence::Never, ..away.clone() };
    assert_eq!(ask(&never), Some(Cause::AgentRefused));
    let long_ago = AgentContact { now: second(9000), ..away };
    assert_eq!(ask(&long_ago), Some(Cause::NotReportedYet));
}

#[test]
fn g3_the_label_that_is_missing_is_given_as_a_command() {
    let command = |selectors: &[&str]| {
        explain(&agent(), &stack(selectors), None, &seen(Presence::Fresh))
            .broken
            .unwrap()
            .command
            .map(|command| command.line)
    };
    assert_eq!(command(&["env=prod,region in (eu,asia)"]).unwrap(), "brokkr agent label shop-1 region=asia");
    assert_eq!(command(&["env=dev,!region"]).unwrap(), "brokkr agent label shop-1 env=dev region-");
    assert_eq!(command(&["gpu"]), None, "the selector names no value");
    assert_eq!(command(&[]), None);
}

#[test]
fn a_grant_is_extended_only_by_the_missing_part() {
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
    let lacks = |what: Uncovered| {
        noted(Transition::Blocked, Reason::NotCovered(what), object("ConfigMap", Some("x"), "a"))
    };
    let grants = [grant];
    let widened = |lacking| widened_grant(&lacks(lacking), &agent(), &grants, |_| 3);
    let command = widened(Uncovered::Namespace("extra".into())).unwrap();
    assert_eq!(command.reach, Reach::Grant { agents: 3 });
    assert_eq!(
        command.line,
        "brokkr grant set shop --to-project shop -l 'env in (dev,prod)' --namespace shop --namespace extra --kind '*' \
         --account shop/brokkr-shop"
    );
    assert!(widened(Uncovered::ClusterScoped).is_none());
    assert!(widened(Uncovered::Namespace("$(id)".into())).is_none());
}

#[test]
fn h7_why_explains_an_agent_that_waits_for_a_widening() {
    let (agent, at_rest) = (agent(), stack(&["env=prod"]));
    let object = *at_rest.newest().expect("a version");
    let widened = |open| {
        let release =
            Release { object, seed: 1, open, clauses: Vec::new(), revision: 1, windows: Windows::default() };
        let (had, earlier) = (EarlierTargets::default(), Vec::new());
        at_rest.clone().with_widening(Some(Widening { key: SequenceId(9), release, had, earlier }))
    };
    let fresh = seen(Presence::Fresh);
    for (open, cause) in [(true, Cause::HeldBack), (false, Cause::RolloutStopped)] {
        assert_eq!(awaited_rollout(&agent, &widened(open)), Some(SequenceId(9)));
        // An agent that held the stack before, and has not begun this version, waits for it, too.
        for waiting in [agent.clone(), agent.clone().holding(vec![at_rest.id])] {
            let verdict = explain(&waiting, &widened(open), None, &fresh);
            let broken = verdict.broken.expect("an explanation");
            assert_eq!((broken.hop, broken.cause), (Hop::Released, cause), "{broken:?}");
            assert_eq!((verdict.state, verdict.wanted), (State::Pending, Some(SequenceId(7))));
        }
    }
    // One that has begun it keeps it.
    let holder = agent.holding(vec![at_rest.id]);
    let verdict = explain(&holder, &widened(false), Some(&report(7, Transition::Healthy)), &fresh);
    assert_eq!((verdict.broken, verdict.state), (None, State::Healthy));
}
