//! The cause that agents have in common. There are a few dozen, so a stack has a bounded number of alerts, whatever its
//! agents report.

use brokkr_api::reason::Reason;
use brokkr_api::report::ObjectNote;
use brokkr_api::why::Cause;

use super::super::webhooks::alarm::Trouble;
use super::super::why::cause_of_notes;

/// Returns the cause of a problem that an agent reports.
#[must_use]
pub fn cause_of(trouble: Trouble, reason: &Reason, objects: &[ObjectNote]) -> Cause {
    let named = || cause_of_notes(reason, objects);
    match trouble {
        Trouble::Repaired => Cause::Contested,
        Trouble::Failed => named().unwrap_or(Cause::Failed),
        Trouble::Degraded => named().unwrap_or(Cause::Degraded),
        Trouble::Blocked => named().unwrap_or(Cause::Blocked),
    }
}

/// Returns the cause as a sentence without a subject and a full stop.
#[must_use]
pub fn sentence(cause: Cause) -> &'static str {
    match cause {
        Cause::UnknownKind => "the cluster does not serve a kind of the stack",
        Cause::NamespaceMissing => "a namespace is missing",
        Cause::Forbidden => "a permission is missing",
        Cause::NotGranted => "the project's grant does not cover the stack",
        Cause::ImmutableField => "an immutable field was changed",
        Cause::QuotaExceeded => "a quota is exceeded",
        Cause::RefusedByWebhook => "an admission webhook refuses a request",
        Cause::OwnedByOther => "an object belongs to another stack or agent",
        Cause::ImageNotPulled => "an image cannot be pulled",
        Cause::CrashLoop => "a container exits repeatedly",
        Cause::JobFailed => "a Job has failed",
        Cause::Unschedulable => "a Pod fits on no node",
        Cause::Contested => "another client keeps changing objects of the stack",
        Cause::Finalizer => "a finalizer delays a deletion",
        Cause::Blocked => "a removal or prune is blocked",
        Cause::AwaitsApproval => "a prune waits for an approval",
        Cause::Suspended => "the stack is suspended",
        Cause::WaveNotReady => "a wave of the stack is not ready in time",
        Cause::Degraded | Cause::NotReady => "objects are not ready",
        _ => "the version cannot be applied",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_one_cause_are_one_group_and_drift_is_its_own() {
        let of = |trouble, reason: Reason| cause_of(trouble, &reason, &[]);
        for reason in [Reason::ErrImagePull, Reason::ImagePullBackOff] {
            assert_eq!(of(Trouble::Degraded, reason), Cause::ImageNotPulled);
        }
        assert_eq!(of(Trouble::Failed, Reason::TooLarge), Cause::Failed);
        assert_eq!(of(Trouble::Degraded, Reason::Other("FromANewerAgent".into())), Cause::Degraded);
        assert_eq!(of(Trouble::Blocked, Reason::WaitingForDeletion), Cause::Blocked);
        assert_eq!(of(Trouble::Repaired, Reason::CrashLoopBackOff), Cause::Contested);
    }
}
