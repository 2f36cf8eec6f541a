//! The English sentence of each reason. Sentences are made here and nowhere else.

use std::fmt;

use super::{LeftBecause, Message, Reason, Uncovered, Wave};

/// Fields of a contest that are named; the rest are counted.
const NAMED_FIELDS: usize = 5;

impl Reason {
    /// Returns the sentence as a message.
    #[must_use]
    pub fn message(&self) -> Message {
        Message::new(self.sentence())
    }

    /// Returns the sentence, followed by details from another program, such as the API server.
    #[must_use]
    pub fn message_with(&self, words: impl std::fmt::Display) -> Message {
        let (sentence, words) = (self.sentence(), words.to_string());
        match (sentence.is_empty(), words.is_empty()) {
            (true, _) => Message::new(words),
            (false, true) => Message::new(sentence),
            (false, false) => Message::new(format!("{sentence}: {words}")),
        }
    }

    /// Returns the reason as one sentence without a full stop.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::ChecksumMismatch { expected, found } => {
                format!("the content has checksum {found}, but the broker announced {expected}")
            }
            Self::NotNamespaced { kind } => {
                format!("{kind} is cluster-scoped, but the manifest sets a namespace")
            }
            Self::UnknownKind { kind } => format!("the cluster does not serve {kind}"),
            Self::NotServed { kind } => format!("{kind} is established but not served yet"),
            Self::NoAccount { project } => {
                format!("project {project} has no account on this agent; an administrator must grant one")
            }
            Self::AccountNotAllowed { project, account } => format!(
                "the grant of project {project} names the account {account}; agents act only as accounts named \
                 NAMESPACE/brokkr-NAME"
            ),
            Self::NotCovered(what) => {
                format!("the project's grant on this agent does not cover {}", uncovered(what))
            }
            Self::Forbidden { account, verbs, resource, namespace } => {
                forbidden(account.as_deref(), verbs, resource.as_deref(), namespace.as_deref())
            }
            Self::AgentNamespace { namespace } => {
                format!("is in the agent's own namespace {namespace}, which no stack may change")
            }
            Self::RoleNotDelivered { role } => {
                format!("binds the role {role}, which this agent did not deliver")
            }
            Self::GrantsTooMuch { account, rules } => format!(
                "grants permissions that {} does not have: {}",
                account.as_deref().unwrap_or("this agent"),
                rules.join(", ")
            ),
            Self::Immutable { fields } => format!(
                "{}: field is immutable; rename the object, or allow it to be recreated with the annotation \
                 brokkr.io/replace: recreate",
                fields.join(", ")
            ),
            Self::Invalid { fields } if !fields.is_empty() => format!("invalid: {}", fields.join(", ")),
            Self::WebhookDenied { webhook: Some(webhook) } => {
                format!("denied by the admission webhook {webhook}")
            }
            Self::QuotaExceeded { quota: Some(quota) } => format!("exceeded quota {quota}"),
            Self::NamespaceNotFound { namespace: Some(namespace) } => {
                format!("namespace {namespace} does not exist")
            }
            Self::NamespaceTerminating { namespace: Some(namespace) } => {
                format!("namespace {namespace} is being deleted")
            }
            Self::HttpStatus { code } => format!("the API server returned HTTP {code}"),
            Self::OwnedByOther { owner: Some(owner) } => {
                format!("belongs to {owner}; remove it there first, or rename it here")
            }
            Self::Drift { repairs } => format!("reverted changes by others, {}", times(*repairs)),
            Self::DriftReported { objects: 1 } => "changed by others, not repaired".to_owned(),
            Self::DriftReported { objects } => format!("{objects} objects changed by others, not repaired"),
            Self::ChangedByOthers { fields } if !fields.is_empty() => {
                format!("changed by others: {}", fields.join(", "))
            }
            Self::Contested { manager, fields, repairs } => contested(manager.as_deref(), fields, *repairs),
            Self::WaitingForWave { wave } => format!("waiting until {wave} is ready"),
            Self::WaveNotReady { wave } => {
                format!("{wave} is not ready; what comes later is not written until it is")
            }
            Self::HookLeftOut { hook } => format!("left out: Brokkr does not run the Helm hook {hook}"),
            Self::PruneNeedsApproval { delete, total } => format!(
                "the prune would delete {delete} of {total} objects (more than 50 and more than 30 %) and needs approval"
            ),
            Self::Finalizer { finalizers } => format!("waiting for finalizer {}", finalizers.join(", ")),
            Self::HandOver { stack } => format!("waiting for stack {stack} to take it over"),
            Self::Left(because) => left(because),
            Self::CannotWatch { kind } => format!("cannot watch {kind}"),
            Self::Stabilizing { seconds } => {
                format!("ready, but not yet for {seconds} s without interruption")
            }
            plain => plain.fixed().to_owned(),
        }
    }

    /// Returns sentences without details; empty if the code of the reason is sufficient.
    fn fixed(&self) -> &'static str {
        match self {
            Self::FetchFailed => "failed to fetch the content from the broker",
            Self::ContentCacheFailed => "failed to store, read or delete the cached content in the cluster",
            Self::Unreadable => "this agent cannot parse the content",
            Self::ParsedDifferently => {
                "this agent and the broker parse the content differently; upgrade the older of the two"
            }
            Self::DiscoveryFailed => "failed to discover the kinds that the API server serves",
            Self::Invalid { .. } => "the object is invalid",
            Self::WebhookDenied { .. } => "denied by an admission webhook",
            Self::QuotaExceeded { .. } => "exceeded a quota",
            Self::NamespaceNotFound { .. } => "the namespace does not exist",
            Self::NamespaceTerminating { .. } => "the namespace is being deleted",
            Self::Fenced => "refused by Brokkr's admission policy in the cluster",
            Self::ApiServerUnreachable => "failed to reach the API server",
            Self::OwnedByOther { owner: None } => "now belongs to another stack or agent",
            Self::ContestOver => "no other manager changes the contested fields any more",
            Self::ChangedByOthers { .. } => "changed by others",
            Self::GoneByOthers => "deleted by others",
            Self::Suspended => "left alone until the suspension ends",
            Self::NotSuspended => "not suspended",
            Self::SuspensionEnded { .. } => "the suspension is over",
            Self::Edited { .. } => "changed by others while it was suspended",
            Self::DeletedByOthers => "deleted by others while it was suspended",
            Self::WaitingForDeletion => "waiting for deleted objects to disappear",
            Self::Terminating => "deleted, but still present",
            Self::OtherContentPending => {
                "waiting for the newest content of another stack, which may contain it"
            }
            Self::CannotInspect => "failed to list the objects that it contains",
            Self::BrokerUnreachable => "failed to announce the stack to the broker",
            Self::RecordNotWritten => "failed to write the record of the stack",
            Self::Superseded => "a newer process of this agent writes this record",
            Self::WritesSuspended => "writes by this process of the agent are suspended",
            Self::AgentInactive => "the agent is INACTIVE and gets no deployment objects",
            Self::Missing => "missing",
            Self::NotReady => "not ready",
            Self::Valid => "the content is valid and accepted",
            Self::NotFetched | Self::Fetching => "fetching the content",
            Self::Refused => "the content was refused; the previous version stays applied",
            Self::Announcing => "announcing to the broker that this agent holds the stack",
            Self::Preparing => "looking up existing objects",
            Self::WaitingForPrerequisites => "waiting for namespaces and CustomResourceDefinitions",
            Self::Validating => "validating changed objects with a dry run",
            Self::Applying => "applying objects",
            Self::Applied => "all objects are applied",
            Self::NotApplied => "not all objects of this version are applied yet",
            Self::Pruning => "applied; deleting objects that no longer belong to the stack",
            Self::PrunePending => "a prune is pending",
            Self::NothingToPrune => "no prune is pending",
            Self::Settling => "applied; completing the record",
            Self::Stopped => "stopped; retrying from the start later",
            Self::Removal => "the removal is accepted",
            Self::Removing => "the stack is being removed",
            Self::NoDrift => "no drift",
            Self::Changed => "changed by others, not reverted yet",
            Self::RepairFailed => "cannot be reverted",
            Self::Uncontested => "no contested fields",
            _ => "",
        }
    }
}

impl fmt::Display for Wave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HooksBefore(weight) => write!(f, "the hooks of weight {weight} before the stack"),
            Self::Number(number) => write!(f, "wave {number}"),
            Self::HooksAfter(weight) => write!(f, "the hooks of weight {weight} after the stack"),
        }
    }
}

fn uncovered(what: &Uncovered) -> String {
    match what {
        Uncovered::Namespace(name) => format!("the namespace {name}"),
        Uncovered::Kind(kind) => format!("the kind {kind}"),
        Uncovered::ClusterScoped => "cluster-scoped objects".to_owned(),
    }
}

fn forbidden(
    account: Option<&str>,
    verbs: &[String],
    resource: Option<&str>,
    namespace: Option<&str>,
) -> String {
    let who = account
        .map_or_else(|| "this agent".to_owned(), |account| format!("this agent, acting as {account},"));
    let Some(resource) = resource else { return format!("{who} lacks a permission in the cluster") };
    let verbs = match verbs {
        [] => "access".to_owned(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    };
    let place = namespace.map_or_else(|| "in the cluster".to_owned(), |name| format!("in namespace {name}"));
    format!("{who} may not {verbs} {resource} {place}")
}

/// `kubectl-edit changes .spec.replicas (12 times in the last minute)`
fn contested(manager: Option<&str>, fields: &[String], repairs: u32) -> String {
    let manager = manager.unwrap_or("another manager");
    let named = fields.iter().take(NAMED_FIELDS).cloned().collect::<Vec<_>>().join(", ");
    let named = if named.is_empty() { "it".to_owned() } else { named };
    let more = match fields.len().saturating_sub(NAMED_FIELDS) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{manager} changes {named}{more} ({} in the last minute)", times(repairs))
}

fn left(because: &LeftBecause) -> String {
    match because {
        LeftBecause::Requested => "left in the cluster, as requested".to_owned(),
        LeftBecause::KeepAnnotation => "left in the cluster because of brokkr.io/prune: keep".to_owned(),
        LeftBecause::Preexisting => "left in the cluster because it existed before Brokkr".to_owned(),
        LeftBecause::NeededBy(object) => format!("left in the cluster because {object} needs it"),
        LeftBecause::NeededByAnotherStack => "left in the cluster because another stack needs it".to_owned(),
        LeftBecause::Contains(objects) => {
            format!("left in the cluster because it contains {}", objects.join(", "))
        }
        LeftBecause::OwnerReference => {
            "left in the cluster because the owner in its ownerReferences decides about its deletion"
                .to_owned()
        }
        LeftBecause::OwnedByOther(owner) => format!("left in the cluster because it belongs to {owner}"),
        LeftBecause::LabelRemoved => {
            "left in the cluster because its label brokkr.io/agent was removed".to_owned()
        }
    }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
