//! What is wrong about a request, and what has to happen then.

use brokkr_api::audit::RefusalReason;
use brokkr_broker::router::Route;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Situation {
    /// A stack of the own project.
    NotTargeted,
    /// A version that came after the agent was a target. It still holds the stack.
    TargetedBefore,
    /// The agent no longer holds the stack.
    HeldBefore,
    OtherProject,
    /// A stack of another project selects the agent, but the project has no grant for it.
    NotGranted,
    DeletedStack,
    PurgedStack,
    UnknownStack,
    SupersededSession,
    Inactive,
    Revoked,
    Rejoined,
    OtherAgent,
    /// In the name of another agent, with a key that is not its own.
    WrongKey,
    OtherInstallation,
    ExpiredAssertion,
    LongLivedAssertion,
    /// The assertion is for another request.
    OtherRequest,
    /// The body is not the signed one.
    OtherBody,
    FutureSequence,
    PastSequence,
    FutureTime,
    PastTime,
    Oversized,
    /// As before, without an announced length.
    OversizedStream,
    Replayed,
    /// The proof of an earlier position.
    WrongMac,
    /// A position without any proof.
    Unproven,
    /// A key change that the old key has not signed.
    ForgedKeyChange,
    /// A report with the id of another agent's report.
    ForgedReport,
    Flood,
}

/// What has to happen. In any case, no other caller may be affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Refused with this error code.
    Refused(&'static str),
    /// Refused in the receipt of reports.
    RefusedInReceipt,
    /// Answered within what the agent may do.
    Harmless,
}

/// The largest body that each route is meant to accept. Not read from the table of routes: it may be wrong there.
pub fn largest_body(route: &str) -> usize {
    match route.rsplit('/').next() {
        Some("holds") => 5 << 20,
        Some("reports") => 1 << 20,
        _ => 4 << 10,
    }
}

impl Situation {
    /// Returns whether a request of this route can be in the situation.
    pub fn applies_to(self, route: &Route) -> bool {
        let writes = !route.name.starts_with("GET ");
        match self {
            Self::OtherBody | Self::Oversized | Self::OversizedStream => writes,
            Self::ForgedKeyChange => route.name.ends_with("/keys"),
            Self::ForgedReport | Self::Flood => route.name.ends_with("/reports"),
            _ => true,
        }
    }

    pub fn expected(self, route: &Route, plain: bool) -> Expected {
        let ends = |ending| route.name.ends_with(ending);
        let (polls, reads_content) = (ends("/target-state"), ends("/{sequence_id}"));
        let refused_if =
            |is_refused, code| if is_refused { Expected::Refused(code) } else { Expected::Harmless };
        match self {
            Self::Revoked
            | Self::Rejoined
            | Self::WrongKey
            | Self::OtherInstallation
            | Self::ExpiredAssertion
            | Self::LongLivedAssertion => Expected::Refused("BRK1001"),
            Self::OtherRequest | Self::OtherBody => Expected::Refused("BRK1010"),
            Self::Oversized | Self::OversizedStream => Expected::Refused("BRK2006"),
            Self::ForgedKeyChange => Expected::Refused("BRK1011"),
            Self::Flood => Expected::Refused("BRK1006"),
            Self::ForgedReport => Expected::RefusedInReceipt,
            // Content has no agent in its path.
            Self::OtherAgent => refused_if(!reads_content, "BRK2001"),
            Self::NotTargeted
            | Self::OtherProject
            | Self::NotGranted
            | Self::DeletedStack
            | Self::UnknownStack
            | Self::FutureSequence
                if ends("/reports") =>
            {
                Expected::RefusedInReceipt
            }
            // An agent may report what became of a stack that it had. An inactive one keeps what it has, and reports it.
            Self::NotTargeted
            | Self::OtherProject
            | Self::NotGranted
            | Self::DeletedStack
            | Self::UnknownStack
            | Self::FutureSequence
            | Self::TargetedBefore
            | Self::HeldBefore
            | Self::Inactive => refused_if(reads_content, "BRK2001"),
            Self::PurgedStack => refused_if(reads_content, "BRK2019"),
            // An older process may read, but neither poll nor replace the list of held stacks.
            Self::SupersededSession => refused_if(polls && !plain || ends("/holds"), "BRK1004"),
            Self::WrongMac | Self::Unproven => refused_if(polls || ends("/targets"), "BRK1012"),
            Self::PastSequence | Self::FutureTime | Self::PastTime | Self::Replayed => Expected::Harmless,
        }
    }

    /// Returns the reason with which an attempt of a known agent has to be in the audit log. All others are counted by
    /// metrics only.
    pub fn audited(self, route: &Route) -> Option<RefusalReason> {
        let ends = |ending| route.name.ends_with(ending);
        let names_a_stack = ends("/reports") || ends("/holds");
        match self {
            Self::NotTargeted
            | Self::OtherProject
            | Self::NotGranted
            | Self::DeletedStack
            | Self::UnknownStack
                if names_a_stack =>
            {
                Some(RefusalReason::NotTargeted)
            }
            Self::NotTargeted
            | Self::OtherProject
            | Self::NotGranted
            | Self::DeletedStack
            | Self::UnknownStack
            | Self::TargetedBefore
            | Self::HeldBefore
            | Self::Inactive
                if ends("/{sequence_id}") =>
            {
                Some(RefusalReason::NotReleased)
            }
            Self::FutureSequence if ends("/reports") => Some(RefusalReason::NotReleased),
            Self::WrongMac | Self::Unproven if ends("/target-state") || ends("/targets") => {
                Some(RefusalReason::ForgedPosition)
            }
            Self::OtherAgent if !ends("/{sequence_id}") => Some(RefusalReason::PermissionDenied),
            Self::ForgedReport => Some(RefusalReason::MalformedReport),
            Self::Flood => Some(RefusalReason::OverBudget),
            _ => None,
        }
    }
}
