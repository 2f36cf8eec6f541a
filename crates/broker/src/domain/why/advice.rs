//! What to do next, for each cause: a sentence, and a command where one command is enough.
//!
//! A command never changes more than the problem affects: a rollback changes all agents of the stack, so it is
//! suggested only if all of them have a problem. Every command comes with what it changes and, if it can do harm, with
//! what to check first.
//!
//! Commands are made here and not by agents: a compromised agent must not be able to inject text into an
//! operator's shell. Names from a report are used only if they are plain.

use brokkr_api::grants::ProjectGrant;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::reason::{Message, ObjectRef, Reason, Uncovered};
use brokkr_api::report::{ConditionKind, ConditionStatus, Transition};
use brokkr_api::selector::Selector;
use brokkr_api::why::{Broken, Cause, Hop, NextCommand, Reach};

use super::super::envelope::desired;
use super::super::facts::AgentFacts;
use super::super::status::LastReport;
use super::cause::{note_of, reasons};
use super::misses::labelling;
use super::refusal::{forbidden, is_plain};
use super::{Case, condition};

/// Returns the broken hop with what to do about it.
pub(super) fn advised(case: &Case<'_>, hop: Hop, cause: Cause, message: impl Into<Message>) -> Broken {
    let (next, command) = advice(case, cause);
    Broken { hop, cause, message: message.into(), next, command }
}

fn advice(case: &Case<'_>, cause: Cause) -> (String, Option<NextCommand>) {
    let (stack, agent) = (&case.stack.name, &case.agent.name);
    let or_roll_back = |text: &str| or_roll_back(case, text);
    let only = |text: &str| (text.to_owned(), None);
    match cause {
        Cause::NothingSubmitted => (format!("submit manifests with brokkr apply {stack}"), None),
        Cause::NotTargeted => (
            format!("correct the agent's labels, or change the targets of the stack: brokkr stack retarget {stack}"),
            labelling(case.agent, case.stack)
                .map(|line| checked(line, Reach::Agent, "which other stacks and grants select these labels")),
        ),
        Cause::OnHold => (
            "follow docs/restore.md; then confirm, on a machine that can reach the broker's database, that this database \
             is the right one"
                .to_owned(),
            Some(checked(
                "brokkr-broker epoch raise",
                Reach::Installation,
                "whether this is the newest copy of the database: agents keep whatever is newer than it",
            )),
        ),
        Cause::AgentAhead => (
            "submit the newer content again, or publish the restored content as a new version"
                .to_owned(),
            Some(checked(
                brokkr(case, &format!("admin settle {stack} --publish-restored")),
                Reach::Stack { agents: case.past.targeted },
                "whether the restored content should run: it replaces the newer content on the agents that have it",
            )),
        ),
        Cause::NamespaceMissing => namespace(case),
        Cause::Forbidden => (forbidden(case.report), None),
        Cause::ImmutableField if is_about_a_volume(case) => or_roll_back(
            "use a claim with another name and copy the data to it; recreating the claim would delete its data",
        ),
        Cause::ImmutableField
        | Cause::QuotaExceeded
        | Cause::RefusedByWebhook
        | Cause::ImageNotPulled
        | Cause::CrashLoop
        | Cause::JobFailed
        | Cause::Unschedulable
        | Cause::Failed
        | Cause::Degraded => or_roll_back(remedy(cause)),
        Cause::UnknownKind | Cause::OwnedByOther | Cause::Blocked | Cause::NotGranted => only(remedy(cause)),
        Cause::Contested => (contested(case.report), None),
        Cause::Finalizer => finalizer(case),
        Cause::AwaitsApproval => (
            remedy(cause).to_owned(),
            prune_size(case.report).map(|delete| {
                checked(
                    brokkr(case, &format!("stack approve {stack} --expect {delete} --agent {agent}")),
                    Reach::Agent,
                    &format!(
                        "which {delete} objects the stack no longer contains; the newest change: {}",
                        brokkr(case, &format!("diff {stack}"))
                    ),
                )
            }),
        ),
        Cause::NotReady => only("check the messages of the objects, or wait"),
        Cause::HeldBack => only("wait until the rollout reaches the agent"),
        Cause::WindowClosed => only("wait until the agent may begin"),
        Cause::WaitingForWave => only("wait; the next wave is written when these objects are ready"),
        Cause::WaveNotReady => or_roll_back(
            "check the messages of the objects; the delivery continues automatically when they are ready",
        ),
        Cause::Suspended => {
            let command = checked(
                brokkr(case, &format!("resume {stack}")),
                Reach::Stack { agents: case.past.targeted },
                "whether others still work on it: its suspensions say who suspended it, and why",
            );
            ("wait until the suspension ends, or end it".to_owned(), Some(command))
        }
        Cause::GateClosed => only("approve the wave with `brokkr rollout approve`, or deny it"),
        Cause::RolloutPaused => only("resume the rollout"),
        Cause::RolloutStopped => or_roll_back("correct the version and submit it again, or resume the rollout"),
        Cause::NotReportedYet => only("wait; if no report arrives, check the agent's log"),
        Cause::Removing => only("wait; objects that block the removal are listed as soon as they are known"),
        // Either the cause concerns the agent itself, and `agent.rs` gives the advice, or there is none to
        // give.
        Cause::AgentInactive
        | Cause::AgentNeverSeen
        | Cause::AgentSilent
        | Cause::AgentLate
        | Cause::AgentRefused
        | Cause::SessionDuplicated
        | Cause::Deleted
        | Cause::Other => only(""),
    }
}

/// Returns what to do about a cause that agents report, in general. For one agent, `why` is more precise.
#[must_use]
pub fn remedy(cause: Cause) -> &'static str {
    match cause {
        Cause::NotGranted => "ask an administrator to extend the project's grant (docs/grants.md)",
        Cause::UnknownKind => {
            "install the CustomResourceDefinition of that kind, with this stack or another one; the agent then continues \
             automatically"
        }
        Cause::NamespaceMissing => "create the namespace, or add it to the stack",
        Cause::Forbidden => "give the account the missing permission, or remove the object from the stack",
        Cause::ImmutableField => {
            "rename the object, or allow it to be recreated with the annotation brokkr.io/replace: recreate"
        }
        Cause::QuotaExceeded => "raise the quota, or reduce what the stack requests",
        Cause::RefusedByWebhook => "fix what the webhook reports",
        Cause::OwnedByOther => "remove the object from the other stack first, or rename it here",
        Cause::ImageNotPulled => "correct the image, or give the cluster access to its registry",
        Cause::CrashLoop => "fix the error that makes the container exit",
        Cause::JobFailed => {
            "fix what the Job reports; then rename the Job, or allow it to be recreated with the annotation \
             brokkr.io/replace: recreate"
        }
        Cause::Unschedulable => "add a node that fits, or reduce what the Pod requests",
        Cause::Contested => {
            "decide who owns the field: stop the other manager, or leave the field to it with the annotation brokkr.io/yield"
        }
        Cause::Finalizer => "let the controller that set the finalizer finish its work",
        Cause::Blocked => "delete the listed objects, which block the removal",
        Cause::AwaitsApproval => {
            "approve the prune if it is intended; otherwise submit a version that keeps the objects"
        }
        Cause::Failed => "correct the manifest or its prerequisites",
        _ => "check the messages of the objects",
    }
}

pub(super) fn checked(line: impl Into<String>, reach: Reach, check_first: &str) -> NextCommand {
    NextCommand { line: line.into(), reach, check_first: Some(check_first.to_owned()) }
}

pub(super) fn in_cluster_of(agent: &str) -> String {
    format!("whether the current kubectl context is the cluster of {agent}")
}

/// Adds a rollback to the advice, if there is a previous version. The command is suggested only if every agent of the
/// stack has a problem. A removal cannot be rolled back.
fn or_roll_back(case: &Case<'_>, text: &str) -> (String, Option<NextCommand>) {
    let (stack, past) = (&case.stack.name, &case.past);
    if desired(case.agent, case.stack).is_none_or(|desired| desired.removal.is_some()) {
        return (text.to_owned(), None);
    }
    if !past.earlier || past.targeted == 0 {
        return (format!("{text}, and apply again"), None);
    }
    // This agent has the problem, whatever it reported.
    let is_counted = case
        .report
        .is_some_and(|report| matches!(report.transition, Transition::Failed | Transition::Degraded));
    let others = past.targeted.saturating_sub(past.failing + u64::from(!is_counted));
    if others > 0 {
        let text = format!(
            "{text}; a rollback would also change agents without a problem ({others} of {})",
            past.targeted
        );
        return (text, None);
    }
    let command = checked(
        brokkr(case, &format!("rollback {stack}")),
        Reach::Stack { agents: past.targeted },
        &format!("what the newest version changed: {}", brokkr(case, &format!("diff {stack}"))),
    );
    (format!("{text}, or roll back to the previous version"), Some(command))
}

/// Returns a `brokkr` command that names the project, unless it is the default one.
fn brokkr(case: &Case<'_>, what: &str) -> String {
    match case.stack.project.as_str() {
        DEFAULT_PROJECT => format!("brokkr {what}"),
        project => format!("brokkr {what} --project {project}"),
    }
}

/// Returns how many objects the pending prune would delete.
fn prune_size(report: Option<&LastReport>) -> Option<u32> {
    let report = report?;
    let of_conditions = report.conditions.iter().map(|condition| &condition.reason);
    of_conditions.chain(reasons(report)).find_map(|reason| match reason {
        Reason::PruneNeedsApproval { delete, .. } => Some(*delete),
        _ => None,
    })
}

fn namespace(case: &Case<'_>) -> (String, Option<NextCommand>) {
    let missing = |reason: &Reason| matches!(reason, Reason::NamespaceNotFound { .. });
    let missing = case
        .report
        .and_then(|report| note_of(report, missing))
        .and_then(|note| note.object.namespace.as_deref().filter(|name| is_plain(name)));
    match missing {
        Some(name) => (
            format!(
                "create the namespace {name}, or add it to the stack; the agent then continues automatically"
            ),
            Some(checked(
                format!("kubectl create namespace {name}"),
                Reach::Cluster,
                &in_cluster_of(&case.agent.name),
            )),
        ),
        None => (
            "wait until the namespace is deleted or exists again; the agent then continues automatically"
                .to_owned(),
            None,
        ),
    }
}

/// Returns whether the immutable field is one of a volume claim, which holds data.
fn is_about_a_volume(case: &Case<'_>) -> bool {
    let note =
        case.report.and_then(|report| note_of(report, |reason| matches!(reason, Reason::Immutable { .. })));
    note.is_some_and(|note| note.object.kind == "PersistentVolumeClaim")
}

fn contested(report: Option<&LastReport>) -> String {
    let contest =
        report.and_then(|report| condition(report, ConditionKind::Contested, ConditionStatus::True));
    let field = contest.and_then(|contest| match &contest.reason {
        Reason::Contested { fields, .. } => fields.first().map(|field| field.trim_start_matches('.')),
        _ => None,
    });
    let field = field.filter(|field| is_plain(field) && !field.starts_with("metadata."));
    let yielding = field.map_or_else(|| " (docs/annotations.md)".to_owned(), |field| format!(": {field}"));
    format!(
        "decide who owns the field: stop the other manager, or leave the field to it with the annotation \
         brokkr.io/yield{yielding}"
    )
}

fn finalizer(case: &Case<'_>) -> (String, Option<NextCommand>) {
    let held = case
        .report
        .and_then(|report| note_of(report, |reason| matches!(reason, Reason::Finalizer { .. })))
        .map(|note| &note.object)
        .filter(|object| is_plain_object(object));
    let next = "let the controller that set the finalizer finish its work; remove the finalizer only if that controller \
                is gone for good";
    let check = format!(
        "whether anything outside the cluster is left behind without the controller's work, and {}",
        in_cluster_of(&case.agent.name)
    );
    let command = held.map(|held| {
        let namespace =
            held.namespace.as_ref().map(|namespace| format!("-n {namespace} ")).unwrap_or_default();
        let kind = held.kind.to_ascii_lowercase();
        let patch = r#"'{"metadata":{"finalizers":null}}'"#;
        let line = format!("kubectl {namespace}patch {kind} {} --type=merge -p {patch}", held.name);
        checked(line, Reach::Object, &check)
    });
    (next.to_owned(), command)
}

/// Returns the command that extends the grant of the agent, for callers who may read grants. `selected` counts the
/// agents that a selector matches.
#[must_use]
pub fn widened_grant(
    report: &LastReport,
    agent: &AgentFacts,
    grants: &[ProjectGrant],
    selected: impl FnOnce(&Selector) -> u64,
) -> Option<NextCommand> {
    let lacking = reasons(report).find_map(|reason| match reason {
        Reason::NotCovered(lacking) => Some(lacking),
        _ => None,
    })?;
    // If several grants cover the agent, the oldest names the account.
    let grant = grants.iter().filter(|grant| agent.matches(&grant.selector)).min_by_key(|grant| grant.id)?;
    let (mut namespaces, mut kinds) = (grant.namespaces.clone(), grant.kinds.clone());
    match lacking {
        Uncovered::Namespace(namespace) if is_plain(namespace) => namespaces.push(namespace.clone()),
        Uncovered::Kind(kind) if is_plain(kind) => kinds.push(kind.clone()),
        _ => return None,
    }
    let list = |flag: &str, words: &[String]| -> String {
        words.iter().map(|word| format!(" {flag} {}", quoted(word))).collect()
    };
    let line = format!(
        "brokkr grant set {} --to-project {} -l {}{}{} --account {}",
        grant.name,
        grant.project,
        quoted(&grant.selector.to_string()),
        list("--namespace", &namespaces),
        list("--kind", &kinds),
        quoted(&grant.account),
    );
    let check = format!("whether the project {} may deploy this to all of these agents", grant.project);
    Some(checked(line, Reach::Grant { agents: selected(&grant.selector) }, &check))
}

fn is_plain_object(object: &ObjectRef) -> bool {
    [Some(&object.kind), object.namespace.as_ref(), Some(&object.name)]
        .into_iter()
        .flatten()
        .all(|word| is_plain(word))
}

fn quoted(word: &str) -> String {
    let plain = |character: char| {
        character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '/' | '=' | ',' | '_')
    };
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
