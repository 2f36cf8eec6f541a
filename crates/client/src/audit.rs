//! The audit log of a project: its entries, and the verification of its chain.

use brokkr_api::audit::{AuditEntry, AuditHead, AuditKind, AuditVerdict};
use brokkr_api::page::Page;
use jiff::Timestamp;

use crate::page::given;
use crate::{Client, PageQuery, Result};

/// Selects entries. An empty field does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// `token:ID`, `agent:ID`, or the name of a token.
    pub who: Option<String>,
    /// A route, or its method and route.
    pub what: Option<String>,
    pub kind: Option<AuditKind>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl Client {
    /// Reads one page of entries, newest first.
    pub async fn audit(&self, query: &AuditQuery, page: &PageQuery) -> Result<Page<AuditEntry>> {
        let pairs = given([
            query.who.clone().map(|who| ("who", who)),
            query.what.clone().map(|what| ("what", what)),
            query.kind.map(|kind| ("kind", kind.to_string())),
            query.since.map(|since| ("since", since.to_string())),
            query.until.map(|until| ("until", until.to_string())),
        ]);
        self.page(&["audit"], &pairs, page).await
    }

    /// Reads the newest link of the project's chain.
    pub async fn audit_head(&self) -> Result<AuditHead> {
        self.send(self.read(&["audit", "head"])).await?.json()
    }

    /// Verifies a part of the chain after the link `after`. Pass `next` of the result as `after` to continue.
    pub async fn audit_verify(&self, after: Option<i64>) -> Result<AuditVerdict> {
        let after = given([after.map(|after| ("after", after.to_string()))]);
        self.send(self.read(&["audit", "verify"]).query(&after)).await?.json()
    }
}
