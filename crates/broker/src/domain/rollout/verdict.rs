//! What an agent counts as, by its reports about the version and its presence.

use brokkr_api::report::Transition;
use jiff::{SignedDuration, Timestamp};

/// A degraded agent counts as bad after this time: Pods that are replaced may be unready for a moment.
const DEGRADED_FOR: SignedDuration = SignedDuration::from_secs(60);
/// An agent that is connected counts as bad if it has no verdict after this time.
const VERDICT_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// What an agent that the version is released to counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Healthy,
    Bad,
    /// It is bad, and was so with its previous version.
    Excused,
    /// It could not begin the version when that was released to it: it blocks nothing, and gets the version when it can.
    Owed,
    /// A prune waits for approval.
    Waiting,
    InFlight,
}

/// Whether an agent is in contact, by the clock of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// Connected; since this time, if it was not, or was no target, at the release.
    Present(Option<Timestamp>),
    /// It has missed some polls, the first at this time: it may be gone.
    Late(Timestamp),
    /// Never seen, or gone: it has missed many polls, the first at this time.
    Silent(Option<Timestamp>),
}

/// The last report of an agent about exactly this version, by the broker's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionReport {
    pub transition: Transition,
    pub since: Timestamp,
    /// Whether the agent had failed with its previous version.
    pub bad_before: bool,
    /// Whether a prune waits for approval.
    pub awaits_approval: bool,
    /// Whether a wave inside the stack waits for the one before. It ends by itself: the agent reports a failure when its time is
    /// over.
    pub waits_for_wave: bool,
}

/// Judges an agent that the version was released to at this time.
#[must_use]
pub fn verdict(
    released_at: Timestamp,
    contact: Contact,
    report: Option<&VersionReport>,
    now: Timestamp,
) -> Verdict {
    let bad = if report.is_some_and(|report| report.bad_before) { Verdict::Excused } else { Verdict::Bad };
    // When an agent has polled again is stored only after a while, but its report shows it.
    let contact = match (contact, report.map(|report| report.since)) {
        (Contact::Silent(Some(missed)) | Contact::Late(missed), Some(reported)) if reported > missed => {
            Contact::Present(Some(reported))
        }
        (Contact::Silent(None), Some(reported)) => Contact::Present(Some(reported)),
        (contact, _) => contact,
    };
    match (report.map(|report| (&report.transition, report)), contact) {
        // A version that cuts the connection after a while is bad, too.
        (Some(_), Contact::Silent(_)) => return bad,
        (Some((Transition::Healthy, _)), Contact::Late(_)) => return Verdict::InFlight,
        (Some((Transition::Healthy | Transition::Removed, _)), _) => return Verdict::Healthy,
        (Some((Transition::Failed, _)), _) => return bad,
        (Some((Transition::Degraded, report)), _) if now.duration_since(report.since) >= DEGRADED_FOR => {
            return bad;
        }
        (Some((Transition::Blocked, report)), _) if report.awaits_approval => return Verdict::Waiting,
        (Some((Transition::Blocked, report)), _) if report.waits_for_wave => return Verdict::InFlight,
        _ => {}
    }
    // A time after now is of before the clock was set back, and so of before a release that is not.
    let was_present = |since: Timestamp| since >= released_at && (since <= now || released_at > now);
    match contact {
        Contact::Silent(Some(since)) if was_present(since) => Verdict::Bad,
        Contact::Late(since) if was_present(since) || report.is_some() => Verdict::InFlight,
        Contact::Late(_) | Contact::Silent(_) => Verdict::Owed,
        Contact::Present(since) => {
            let able_since = since.into_iter().chain(report.map(|report| report.since)).max();
            let able_since = able_since.map_or(released_at, |since| since.max(released_at));
            let is_late = now.duration_since(able_since) >= VERDICT_WITHIN;
            if is_late { bad } else { Verdict::InFlight }
        }
    }
}
