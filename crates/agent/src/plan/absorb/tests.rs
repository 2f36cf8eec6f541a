//! Results of steps that no story of the simulator depends on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use brokkr_api::ids::Checksum;
use brokkr_api::reason::Reason;
use brokkr_api::{AgentId, SequenceId, StackId};
use brokkr_manifest::Key;
use jiff::Timestamp;

use super::{absorb, retry};
use crate::model::fixtures::seen;
use crate::model::{
    ApplyReason, BoundRole, Content, DesiredObject, FailedStep, Failure, FailureClass, Progress, Step,
    StepResult,
};
use crate::ownership::Stamp;
use crate::plan::fixtures::{desired, key};
use crate::plan::timing::{NEXT_CYCLE, PARKED, RIGHTS_CYCLE};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Returns what is known after this step has failed.
fn after_failure(step: &Step, reason: Reason) -> Progress {
    let (class, message) = (FailureClass::Transient, "it failed".into());
    let failure = Failure { class, reason, message, retry_after: None };
    let mut progress = Progress::default();
    absorb(&mut progress, &mut None, step, &StepResult::Failed(failure), NOW);
    progress
}

fn stamp() -> Stamp {
    Stamp {
        agent: AgentId::generate(),
        stack: StackId::generate(),
        checksum: Checksum::of(b""),
        sequence: SequenceId(1),
    }
}

fn config_map() -> DesiredObject {
    desired(&key("", "ConfigMap", Some("shop"), "settings"), &serde_json::json!({}))
}

#[test]
fn a_delivery_goes_on_if_its_rights_cannot_be_reviewed() {
    let content = Arc::new(Content {
        sequence: SequenceId(1),
        checksum: Checksum::of(b""),
        objects: BTreeMap::new(),
        dormant: BTreeMap::new(),
        left_out: Vec::new(),
        definitions: HashMap::new(),
        fetched: NOW,
        verified: NOW,
    });
    let progress = after_failure(&Step::CheckRights { content }, Reason::ApiServerUnreachable);
    assert_eq!(
        progress.lookups.missing_rights,
        Some(Vec::new()),
        "its writes will show whether rights are missing"
    );
}

#[test]
fn f2_a_repair_goes_on_if_the_rivals_cannot_be_found() {
    let desired = Arc::new(config_map());
    let step = Step::FindRivals { desired: desired.clone(), stamp: stamp() };
    let progress = after_failure(&step, Reason::ApiServerUnreachable);
    assert_eq!(progress.repairs.rivals.get(&desired.key), Some(&Vec::new()), "only their names are missing");
    assert!(progress.failures.objects.is_empty());
}

/// The dry run of a role creates nothing, so the dry run of its binding does not find it.
#[test]
fn b2_a_binding_is_valid_only_if_nothing_but_its_role_is_missing() {
    let role = Key { kind: "Role".into(), group: "rbac.authorization.k8s.io".into(), ..config_map().key };
    for (in_stack, reason, is_valid) in
        [(true, Reason::NotFound, true), (false, Reason::NotFound, false), (true, Reason::Fenced, false)]
    {
        let bound = Some(BoundRole { role: role.clone(), in_stack });
        let desired = Arc::new(DesiredObject { binds: bound, ..config_map() });
        let step = Step::DryRun { desired: desired.clone(), uid: None, stamp: stamp() };
        let progress = after_failure(&step, reason.clone());
        assert_eq!(progress.delivery.validated.contains(&desired.key), is_valid, "{reason:?}, {in_stack}");
        assert_eq!(progress.failures.objects.is_empty(), is_valid, "{reason:?}, {in_stack}");
    }
}

#[test]
fn f2_a_sweep_that_changes_nothing_is_no_repair() {
    for (version, is_repair) in [(7, false), (8, true)] {
        let desired = Arc::new(config_map());
        let why = ApplyReason::Sweep { version: 7 };
        let step = Step::Apply { desired: desired.clone(), uid: Some("one".into()), stamp: stamp(), why };
        let mut progress = Progress::default();
        absorb(
            &mut progress,
            &mut None,
            &step,
            &StepResult::Applied { seen: seen("one", version), created: false },
            NOW,
        );
        assert_eq!((progress.repairs.count == 1, progress.repairs.fights.len() == 1), (is_repair, is_repair));
    }
}

#[test]
fn d2_how_long_a_failure_delays_the_next_attempt_depends_on_its_class() {
    let pause = |class, reason: Reason, attempts: u32| {
        let failure = Failure { class, reason, message: "it failed".into(), retry_after: None };
        let again = |state, _| Some(retry(Option::as_ref(&state), FailedStep::Other, &failure, NOW));
        (0..attempts).fold(None, again).map(|state| state.retry_at.duration_since(NOW)).expect("an attempt")
    };
    // Rights are granted by people, who expect to see the effect soon.
    assert_eq!(pause(FailureClass::Permanent, Reason::Fenced, 1), RIGHTS_CYCLE);
    assert_eq!(pause(FailureClass::Permanent, Reason::None, 1), NEXT_CYCLE);
    assert_eq!(pause(FailureClass::Immutable, Reason::Fenced, 1), NEXT_CYCLE);
    assert!(pause(FailureClass::Missing, Reason::None, 4) < RIGHTS_CYCLE);
    assert_eq!(pause(FailureClass::Missing, Reason::None, 5), PARKED);
    assert!(pause(FailureClass::Conflict, Reason::None, 3).is_zero());
    assert!(!pause(FailureClass::Conflict, Reason::None, 4).is_zero());
}
