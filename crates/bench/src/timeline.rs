//! Splits the time between a submission and its application, from the hops that the agent reports and from its requests in the
//! API server's audit log. All processes are on one machine and share a clock.

use brokkr_api::report::Hops;
use brokkr_testkit::audit::Request;
use jiff::Timestamp;

use crate::environment::Submission;
use crate::results::Results;

/// A stage of the agent's work, as it shows in the audit log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Look,
    Record,
    Namespaces,
    Validate,
    Apply,
}

impl Stage {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Look, "look"),
        (Self::Record, "record"),
        (Self::Namespaces, "namespaces"),
        (Self::Validate, "dryrun"),
        (Self::Apply, "apply"),
    ];

    fn of(request: &Request) -> Option<Self> {
        if request.group == "brokkr.io" {
            return request.is_write().then_some(Self::Record);
        }
        match request.verb.as_str() {
            "get" | "list" => Some(Self::Look),
            "patch" if request.uri.contains("dryRun=All") => Some(Self::Validate),
            "patch" if request.resource == "namespaces" => Some(Self::Namespaces),
            "patch" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// Adds the split of one delivery: for each stage when it began and ended, in seconds since the submission.
pub fn add(results: &mut Results, name: &str, submission: &Submission, hops: &Hops, requests: &[Request]) {
    let since = |at: Timestamp| at.duration_since(submission.at).as_secs_f64();
    results.add(&format!("{name}_accepted_at_s"), submission.accepted_s);
    for (hop, at) in [("fetched", hops.fetched), ("verified", hops.verified)] {
        if let Some(at) = at {
            results.add(&format!("{name}_{hop}_at_s"), since(at));
        }
    }
    for (stage, word) in Stage::ALL {
        let of_stage = || requests.iter().filter(|request| Stage::of(request) == Some(stage));
        let (Some(first), Some(last)) = (
            of_stage().map(|request| request.received).min(),
            of_stage().map(|request| request.reached).max(),
        ) else {
            continue;
        };
        let key = format!("{name}_{word}_from_s");
        results.add(&key, since(first));
        results.note(&key, format!("{} requests", of_stage().count()));
        results.add(&format!("{name}_{word}_to_s"), since(last));
    }
    for (hop, at) in [("applied", hops.applied), ("reported", hops.reported)] {
        if let Some(at) = at {
            results.add(&format!("{name}_{hop}_at_s"), since(at));
        }
    }
}
