//! Maps the reason that an agent reports to the cause that `why` shows, and to the hop that it blocks.

use brokkr_api::reason::Reason;
use brokkr_api::report::{Hops, ObjectNote};
use brokkr_api::why::{Cause, Hop};

use super::super::status::LastReport;

/// Returns the reasons of a report: its own first, then those of its objects.
pub(super) fn reasons(report: &LastReport) -> impl Iterator<Item = &Reason> {
    std::iter::once(&report.reason).chain(report.objects.iter().map(|note| &note.reason))
}

/// Returns the cause that a report names, if any.
pub(super) fn of_report(report: &LastReport) -> Option<Cause> {
    cause_of_notes(&report.reason, &report.objects)
}

/// Returns the cause that the reason of a report names, or the first of its objects, if any.
#[must_use]
pub fn cause_of_notes(reason: &Reason, objects: &[ObjectNote]) -> Option<Cause> {
    std::iter::once(reason).chain(objects.iter().map(|note| &note.reason)).find_map(of)
}

pub(super) fn of(reason: &Reason) -> Option<Cause> {
    let cause = match reason {
        Reason::UnknownKind { .. } => Cause::UnknownKind,
        Reason::NamespaceNotFound { .. } | Reason::NamespaceTerminating { .. } => Cause::NamespaceMissing,
        Reason::WebhookDenied { .. } => Cause::RefusedByWebhook,
        Reason::Forbidden { .. }
        | Reason::Fenced
        | Reason::AgentNamespace { .. }
        | Reason::RoleNotDelivered { .. }
        | Reason::GrantsTooMuch { .. } => Cause::Forbidden,
        Reason::Immutable { .. } => Cause::ImmutableField,
        Reason::QuotaExceeded { .. } => Cause::QuotaExceeded,
        Reason::OwnedByOther { .. } => Cause::OwnedByOther,
        reason if reason.is_image_pull() => Cause::ImageNotPulled,
        Reason::CrashLoopBackOff | Reason::OOMKilled | Reason::Error => Cause::CrashLoop,
        reason if reason.is_failed_job() => Cause::JobFailed,
        Reason::Unschedulable | Reason::VolumeClaimPending => Cause::Unschedulable,
        Reason::NotCovered(_) | Reason::NoAccount { .. } | Reason::AccountNotAllowed { .. } => {
            Cause::NotGranted
        }
        Reason::PruneNeedsApproval { .. } => Cause::AwaitsApproval,
        Reason::Finalizer { .. } => Cause::Finalizer,
        Reason::Suspended => Cause::Suspended,
        Reason::WaitingForWave { .. } => Cause::WaitingForWave,
        Reason::WaveNotReady { .. } => Cause::WaveNotReady,
        _ => return None,
    };
    Some(cause)
}

/// Returns the hop at which a failed delivery stopped.
pub(super) fn hop_of_failure(report: &LastReport, hops: &Hops) -> Hop {
    reasons(report).find_map(Reason::hop).unwrap_or_else(|| {
        [(hops.fetched, Hop::Fetched), (hops.verified, Hop::Verified)]
            .into_iter()
            .find_map(|(at, hop)| at.is_none().then_some(hop))
            .unwrap_or(Hop::Applied)
    })
}

/// Returns the first object with a matching reason.
pub(super) fn note_of(report: &LastReport, matches: impl Fn(&Reason) -> bool) -> Option<&ObjectNote> {
    report.objects.iter().find(|note| matches(&note.reason))
}
