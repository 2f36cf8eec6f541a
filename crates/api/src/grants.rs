//! Grants: which agents a project may use, for what, and as which account.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::GrantId;
use crate::names::Name;
use crate::selector::Selector;

/// The agent acts as itself only for the project `default`: no grant may name its own account.
const OWN_ACCOUNT: &str = "brokkr-agent";
/// The maximum number of namespaces, and of kinds, in one grant.
pub const MOST_LINES: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectGrant {
    pub id: GrantId,
    pub name: Name,
    pub project: String,
    /// The agents that it applies to.
    pub selector: Selector,
    /// Names of namespaces; `*` allows all namespaces and cluster-scoped objects.
    pub namespaces: Vec<String>,
    /// `Kind`, `Kind.group`, `*.group` or `*`.
    pub kinds: Vec<String>,
    /// The ServiceAccount that agents act as, `namespace/brokkr-name`.
    pub account: String,
    pub created_by: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Creates a grant, or replaces an existing one. The project of a grant cannot change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutGrant {
    pub project: String,
    pub selector: Selector,
    pub namespaces: Vec<String>,
    pub kinds: Vec<String>,
    pub account: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadGrant {
    #[error("{0} is empty, which would allow nothing; use '*' to allow everything")]
    Empty(&'static str),
    #[error("{0} has more than {MOST_LINES} entries")]
    TooMany(&'static str),
    #[error("{0:?} is not a namespace: use its name, or '*'")]
    Namespace(String),
    #[error("{0:?} is not a kind: use Kind, Kind.group, *.group or '*'")]
    Kind(String),
    #[error(
        "{0:?} is not an account for grants: use NAMESPACE/brokkr-NAME; Brokkr's admission policy does not restrict other accounts"
    )]
    Account(String),
}

impl PutGrant {
    pub fn check(&self) -> Result<(), BadGrant> {
        for (what, lines) in [("namespaces", &self.namespaces), ("kinds", &self.kinds)] {
            if lines.is_empty() {
                return Err(BadGrant::Empty(what));
            }
            if lines.len() > MOST_LINES {
                return Err(BadGrant::TooMany(what));
            }
        }
        let namespace = |name: &str| name == "*" || name.parse::<Name>().is_ok();
        if let Some(bad) = self.namespaces.iter().find(|name| !namespace(name)) {
            return Err(BadGrant::Namespace(bad.clone()));
        }
        if let Some(bad) = self.kinds.iter().find(|kind| !is_kind(kind)) {
            return Err(BadGrant::Kind(bad.clone()));
        }
        if !is_account(&self.account) {
            return Err(BadGrant::Account(self.account.clone()));
        }
        Ok(())
    }
}

fn is_kind(text: &str) -> bool {
    let (kind, group) = text.split_once('.').map_or((text, None), |(kind, group)| (kind, Some(group)));
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_name =
        kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.chars().all(|c| c.is_ascii_alphanumeric());
    text.len() <= 253
        && (kind == "*" || is_name)
        && group.is_none_or(|group| !group.is_empty() && group.chars().all(plain))
}

fn is_account(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    text.split_once('/').is_some_and(|(namespace, name)| {
        namespace.parse::<Name>().is_ok()
            && name != OWN_ACCOUNT
            && name.len() <= 253
            && name.strip_prefix("brokkr-").is_some_and(|rest| !rest.is_empty() && rest.chars().all(plain))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> PutGrant {
        PutGrant {
            project: "shop".into(),
            selector: "env=prod".parse().unwrap(),
            namespaces: vec!["shop".into()],
            kinds: vec!["*".into()],
            account: "shop/brokkr-shop".into(),
        }
    }

    #[test]
    fn an_empty_grant_or_an_account_that_the_fence_does_not_restrict_is_refused() {
        assert_eq!(grant().check(), Ok(()));
        for account in [
            "",
            "brokkr-shop",
            "shop/deployer",
            "/brokkr-x",
            "shop/brokkr-",
            "shop/brokkr-agent",
            "a/brokkr-a/b",
        ] {
            let bad = PutGrant { account: account.into(), ..grant() };
            assert_eq!(bad.check(), Err(BadGrant::Account(account.into())));
        }
        assert_eq!(PutGrant { namespaces: vec![], ..grant() }.check(), Err(BadGrant::Empty("namespaces")));
        assert_eq!(PutGrant { kinds: vec![], ..grant() }.check(), Err(BadGrant::Empty("kinds")));
        for kind in ["ConfigMap", "Deployment.apps", "*.example.com", "*"] {
            assert_eq!(PutGrant { kinds: vec![kind.into()], ..grant() }.check(), Ok(()), "{kind}");
        }
        for kind in ["", "configmaps", "Deployment.", "*x", "a b", ".apps"] {
            assert!(PutGrant { kinds: vec![kind.into()], ..grant() }.check().is_err(), "{kind}");
        }
        assert!(PutGrant { namespaces: vec!["Shop".into()], ..grant() }.check().is_err());
    }
}
