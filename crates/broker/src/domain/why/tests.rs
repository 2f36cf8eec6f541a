//! A table of cases: what is known, and the hop and cause that follow from it.

use brokkr_api::ids::Checksum;
use brokkr_api::report::ObjectNote;
use brokkr_api::{AgentId, StackId};

use super::super::facts::{ExplicitTarget, ObjectFacts, SelectorTarget, SessionFacts};
use super::super::labels::Label;
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
    Seen { presence, last_seen: Some(second(1000)), now: second(1010) }
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
        let verdict = why(agent, stack, report.as_ref(), seen(presence));
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
    let verdict = why(&agent(), &stack, None, seen(Presence::Fresh));
    assert_eq!(
        verdict.evidence[0],
        "selector env=prod,region=eu misses: it wants region=eu, the agent has region=us"
    );
    assert_eq!(verdict.evidence.len(), NEAR_MISSES + 1);
    let mut named = super::tests::stack(&[]);
    let evidence = |stack: &StackFacts| why(&agent(), stack, None, seen(Presence::Fresh)).evidence[0].clone();
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
    let verdict = why(&agent(), &stack(&["*"]), Some(&failed), seen(Presence::Fresh));
    assert_eq!(verdict.evidence[0], "Deployment shop/web: FieldImmutable: spec.selector");
    assert_eq!(verdict.broken.unwrap().message, "1 object was refused");
}
