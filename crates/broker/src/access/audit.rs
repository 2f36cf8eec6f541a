//! The audit entry of a request: the caller, the origin and the outcome.

use brokkr_api::audit::{AuditKind, RefusalReason};
use brokkr_api::names::DEFAULT_PROJECT;
use http::StatusCode;

use super::caller::Caller;
use super::origin::Origin;
use crate::domain::audit::AuditRecord;

impl AuditRecord {
    #[must_use]
    pub fn new(kind: AuditKind, caller: Option<&Caller>, origin: &Origin, status: StatusCode) -> Self {
        let (project, principal, name) = match caller {
            Some(caller @ Caller::Token(token)) => {
                (token.project.clone(), caller.principal(), token.name.clone())
            }
            Some(caller @ Caller::Agent(_)) => {
                (DEFAULT_PROJECT.to_owned(), caller.principal(), String::new())
            }
            None => (DEFAULT_PROJECT.to_owned(), "nobody".to_owned(), String::new()),
        };
        Self {
            kind,
            project,
            principal,
            name,
            method: origin.method.to_string(),
            route: origin.route.clone(),
            path: origin.path.clone(),
            address: origin.address.map(|address| address.to_string()).unwrap_or_default(),
            status: status.as_u16(),
            request_id: origin.request_id.clone(),
            refusal: None,
            count: 1,
            reason: String::new(),
            before: None,
            after: None,
        }
    }

    /// Returns the entry for a refused attempt.
    #[must_use]
    pub fn refused(caller: &Caller, origin: &Origin, status: StatusCode, refusal: RefusalReason) -> Self {
        Self { refusal: Some(refusal), ..Self::new(AuditKind::Refused, Some(caller), origin, status) }
    }
}
