//! State that handlers and tasks share: one [`Broker`], built once by `serve`.
//!
//! | module         | contents                                                                  |
//! |----------------|---------------------------------------------------------------------------|
//! | `body_budget`  | how much memory request bodies may use                                    |
//! | `catch_up`     | waiting until this replica has seen what a caller has seen                |
//! | `contents`     | a bounded cache of the content of deployment objects                      |
//! | `history`      | which history marks the database has                                      |
//! | `long_poll`    | the contract between the handler of a poll and the connection it waits on |
//! | `presence`     | when agents were last seen                                                |
//! | `quota`        | how much a project uses                                                   |
//! | `refusals`     | the queue of refused attempts on their way to the audit log               |
//! | `report_queue` | reports on their way to the database                                      |
//! | `restore`      | whether the installation is on hold, and which agents have to report      |
//! | `shutdown`     | whether this replica is stopping                                          |
//! | `streams`      | events on their way to watch streams                                      |
//! | `tail_notifier`| wakes the outbox tail after a local commit                                |
//! | `views`        | views of a fleet, computed once for all callers                           |
//! | `webhooks`     | sends messages to webhooks                                                |

pub mod body_budget;
pub mod catch_up;
pub mod contents;
pub mod history;
pub mod long_poll;
pub mod presence;
pub mod quota;
pub mod refusals;
pub mod report_queue;
pub mod restore;
pub mod shutdown;
pub mod streams;
pub mod tail_notifier;
pub mod views;
pub mod webhooks;

use std::sync::Arc;

use brokkr_api::InstallationId;
use brokkr_api::audit::AuditKind;
use http::StatusCode;
use sqlx::PgPool;

use crate::access::Access;
use crate::access::caller::Caller;
use crate::access::origin::Origin;
use crate::domain::audit::AuditRecord;
use crate::error::ApiError;
use crate::index::Index;
use crate::metrics::{FleetCount, Metrics, StackCount};
use crate::store::audit::audit_insert;
use body_budget::BodyBudget;
use contents::Contents;
use history::History;
use presence::Presence;
use quota::Usage;
use refusals::Refusals;
use report_queue::ReportQueue;
use restore::RestoreState;
use shutdown::Shutdown;
use streams::Streams;
use tail_notifier::TailNotifier;
use views::Views;
use webhooks::Webhooks;

pub use catch_up::Progress;

/// Everything a handler can reach.
#[derive(Debug)]
pub struct Broker {
    pub installation: InstallationId,
    pub pool: PgPool,
    pub index: Arc<Index>,
    /// Wakes the outbox tail after a commit of this replica.
    pub tail: TailNotifier,
    pub access: Access,
    pub refusals: Refusals,
    pub reports: ReportQueue,
    pub presence: Presence,
    pub restore: RestoreState,
    pub history: History,
    pub streams: Streams,
    pub views: Views,
    pub contents: Contents,
    pub bodies: BodyBudget,
    pub usage: Usage,
    pub webhooks: Arc<Webhooks>,
    pub metrics: Metrics,
    pub fleet: FleetCount,
    pub stack_metrics: StackCount,
    pub shutdown: Shutdown,
}

impl Broker {
    /// Writes an audit entry for an access that changes nothing, such as reading Secrets. The caller must not
    /// proceed if this fails.
    pub async fn note(&self, kind: AuditKind, caller: &Caller, origin: &Origin) -> Result<(), ApiError> {
        let record = AuditRecord::new(kind, Some(caller), origin, StatusCode::OK);
        audit_insert(&self.pool, &[record]).await?;
        Ok(())
    }

    /// Returns the seconds over which agents should spread a reconnect: about a thousand agents per second.
    pub fn reconnect_spread(&self) -> u64 {
        let agents = u64::try_from(self.index.snapshot().agents()).unwrap_or(u64::MAX);
        (agents / 1000 + 1).min(600)
    }
}
