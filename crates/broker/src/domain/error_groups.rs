//! Errors of a whole fleet, grouped by their typed reason: the same error on three agents is one group of three.
//!
//! Details that differ from cluster to cluster (namespaces, accounts, numbers) are left out of the group.

use brokkr_api::reason::Reason;
use brokkr_api::report::Report;
use sha2::{Digest as _, Sha256};

/// Stored bytes of the digest: enough that no two reasons of a fleet collide.
const KEY_BYTES: usize = 16;

/// The group of errors that a report belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorGroup {
    pub key: Vec<u8>,
    pub reason: Reason,
}

/// Groups a report by the first reason that one of its objects has, because that is closer to the cause. If
/// no object has a reason, groups by the reason of the report itself.
#[must_use]
pub fn error_group(report: &Report) -> ErrorGroup {
    let of_objects = report.objects.iter().map(|note| &note.reason).find(|reason| !reason.is_none());
    let reason = generalized(of_objects.unwrap_or(&report.reason));
    let mut hash = Sha256::new();
    hash.update(reason.code().as_bytes());
    hash.update([0]);
    hash.update(reason.details().map(|details| details.to_string()).unwrap_or_default().as_bytes());
    ErrorGroup { key: hash.finalize()[..KEY_BYTES].to_vec(), reason }
}

/// Returns the reason without the details that differ from cluster to cluster.
fn generalized(reason: &Reason) -> Reason {
    match reason.clone() {
        Reason::Forbidden { verbs, resource, .. } => {
            Reason::Forbidden { account: None, verbs, resource, namespace: None }
        }
        Reason::GrantsTooMuch { rules, .. } => Reason::GrantsTooMuch { account: None, rules },
        Reason::NamespaceNotFound { .. } => Reason::NamespaceNotFound { namespace: None },
        Reason::NamespaceTerminating { .. } => Reason::NamespaceTerminating { namespace: None },
        Reason::QuotaExceeded { .. } => Reason::QuotaExceeded { quota: None },
        Reason::OwnedByOther { .. } => Reason::OwnedByOther { owner: None },
        Reason::Contested { manager, fields, .. } => Reason::Contested { manager, fields, repairs: 0 },
        Reason::ChecksumMismatch { .. }
        | Reason::Drift { .. }
        | Reason::PruneNeedsApproval { .. }
        | Reason::HandOver { .. }
        | Reason::Gone { .. }
        | Reason::Left(_) => reason.without_details(),
        general => general,
    }
}

#[cfg(test)]
mod tests {
    use brokkr_api::reason::{Message, ObjectRef};
    use brokkr_api::report::ObjectNote;
    use serde_json::json;

    use super::*;

    fn report(reason: Reason) -> Report {
        let object = ObjectRef { kind: "ConfigMap".into(), name: "a".into(), ..Default::default() };
        let mut report: Report = serde_json::from_value(json!({
            "id": uuid::Uuid::nil(), "stack_id": uuid::Uuid::nil(), "sequence_id": 1, "transition": "failed",
            "at": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        report.objects = vec![ObjectNote { object, reason, message: Message::default() }];
        report
    }

    fn forbidden(namespace: &str, verb: &str) -> Reason {
        Reason::Forbidden {
            account: Some(format!("system:serviceaccount:{namespace}:brokkr-shop")),
            verbs: vec![verb.into()],
            resource: Some("deployments.apps".into()),
            namespace: Some(namespace.into()),
        }
    }

    #[test]
    fn the_same_error_in_different_namespaces_is_one_group() {
        let group = |reason| error_group(&report(reason));
        assert_eq!(group(forbidden("shop", "create")), group(forbidden("till", "create")));
        assert_ne!(group(forbidden("shop", "create")), group(forbidden("shop", "patch")));
        let approval = |delete, total| group(Reason::PruneNeedsApproval { delete, total });
        assert_eq!(approval(60, 100), approval(70, 80));
        assert_eq!(approval(60, 100).reason.code(), "PruneNeedsApproval");
        let invalid = |field: &str| group(Reason::Invalid { fields: vec![field.into()] });
        assert_ne!(invalid("spec.replicas"), invalid("spec.selector"));
    }

    #[test]
    fn the_reason_of_an_object_wins_over_the_reason_of_its_report() {
        let mut report_of_stack = report(Reason::Fenced);
        report_of_stack.reason = Reason::Stopped;
        assert_eq!(error_group(&report_of_stack).reason, Reason::Fenced);
        report_of_stack.objects.clear();
        assert_eq!(error_group(&report_of_stack).reason, Reason::Stopped);
    }
}
