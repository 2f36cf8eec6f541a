//! From the word that an agent reports to the cause that `why` tells, and the hop that it keeps from being passed.

use brokkr_api::report::{Hops, ObjectNote};
use brokkr_api::why::{Cause, Hop};

use super::super::status::LastReport;

/// What the report names, where that is more than "it failed".
pub(super) fn of_report(report: &LastReport) -> Option<Cause> {
    let notes = || report.objects.iter().map(|note| (note.reason.as_str(), note.message.as_str()));
    of(&report.reason, &report.message).or_else(|| notes().find_map(|(reason, message)| of(reason, message)))
}

/// The agent's words are those of Kubernetes where it has one; each that is known stands for one cause.
pub(super) fn of(reason: &str, message: &str) -> Option<Cause> {
    let cause = match reason {
        "UnknownKind" => Cause::UnknownKind,
        "NamespaceNotFound" | "NamespaceTerminating" => Cause::NamespaceMissing,
        "WebhookDenied" => Cause::RefusedByWebhook,
        // As agents told it that had no word of its own for it.
        "Forbidden" | "Invalid" if denied_by_webhook(message) => Cause::RefusedByWebhook,
        "Forbidden" | "NoRight" => Cause::Forbidden,
        "Immutable" => Cause::ImmutableField,
        "QuotaExceeded" => Cause::QuotaExceeded,
        "OwnedByOther" => Cause::OwnedByOther,
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "ImageInspectError" => Cause::ImageNotPulled,
        "CrashLoopBackOff" | "OOMKilled" | "Error" => Cause::CrashLoop,
        "Unschedulable" | "VolumeClaimPending" => Cause::Unschedulable,
        "NotGranted" | "NoGrant" => Cause::NotGranted,
        "PruneNeedsApproval" => Cause::AwaitsApproval,
        "Finalizer" => Cause::Finalizer,
        _ => return None,
    };
    Some(cause)
}

/// How the API server says it, whatever code the webhook chose.
fn denied_by_webhook(message: &str) -> bool {
    message.contains("admission webhook \"") && message.contains("denied the request")
}

/// Where a delivery that failed has stopped.
pub(super) fn hop_of_failure(report: &LastReport, hops: &Hops) -> Hop {
    match report.reason.as_str() {
        "FetchFailed" | "ChecksumMismatch" | "ContentNotKept" => Hop::Fetched,
        "Unreadable" | "ReadDifferently" | "NotNamespaced" | "DiscoveryFailed" => Hop::Verified,
        _ if of_report(report).is_some() => Hop::Applied,
        _ => [(hops.fetched, Hop::Fetched), (hops.verified, Hop::Verified)]
            .into_iter()
            .find_map(|(at, hop)| at.is_none().then_some(hop))
            .unwrap_or(Hop::Applied),
    }
}

/// The first object that says this.
pub(super) fn note_of<'a>(report: &'a LastReport, reason: &str) -> Option<&'a ObjectNote> {
    report.objects.iter().find(|note| note.reason == reason)
}
