//! Checks what a project may do in this cluster, and with which account.
//!
//! An administrator defines grants; a stack cannot choose one. Narrowing or deleting a grant *freezes* the
//! objects that it covered: they are neither written nor deleted until they are granted again. This module
//! has no I/O: the plan checks grants before each decision, and the worker before each request.

use brokkr_api::envelope::{Grant, TargetStack};
use brokkr_api::reason::{Reason, Uncovered};
use brokkr_api::report::ObjectNote;
use brokkr_install::may_be_impersonated;
use brokkr_manifest::Key;

use crate::resource::object_ref;

/// The agent applies the stacks of this project with its own account, unless a grant names another one.
pub const DEFAULT_PROJECT: &str = "default";

/// The identity for requests about a stack. Only [`acting`] creates one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ActingAs(As);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum As {
    Agent,
    Account { namespace: String, name: String },
}

impl ActingAs {
    /// Returns the user to impersonate; none if the agent uses its own account.
    ///
    /// The groups of a ServiceAccount are not sent: the API server adds them, and sending them would require the
    /// permission to impersonate groups.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        match &self.0 {
            As::Agent => None,
            As::Account { namespace, name } => Some(format!("system:serviceaccount:{namespace}:{name}")),
        }
    }
}

/// Returns the identity for a stack, or why there is none.
pub fn acting(target: &TargetStack) -> Result<ActingAs, Reason> {
    match target.grant.as_ref().and_then(|grant| grant.account.as_deref()) {
        Some(account) => match account.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && may_be_impersonated(name) => {
                Ok(ActingAs(As::Account { namespace: namespace.into(), name: name.into() }))
            }
            _ => Err(Reason::AccountNotAllowed {
                project: target.project.clone(),
                account: account.to_owned(),
            }),
        },
        None if target.project == DEFAULT_PROJECT => Ok(ActingAs(As::Agent)),
        None => Err(Reason::NoAccount { project: target.project.clone() }),
    }
}

/// Returns notes about the objects in the agent's own namespace, which no stack may change (C6).
#[must_use]
pub fn in_own_namespace<'a>(home: &str, objects: impl IntoIterator<Item = &'a Key>) -> Vec<ObjectNote> {
    let own = objects.into_iter().filter(|key| key.affected_namespace() == Some(home));
    own.map(|key| note(key, Reason::AgentNamespace { namespace: home.to_owned() })).collect()
}

fn note(key: &Key, reason: Reason) -> ObjectNote {
    ObjectNote { object: object_ref(key), message: reason.message(), reason }
}

/// Returns notes about the objects that the grant does not cover.
///
/// Without a grant, [`acting`] and RBAC decide. Each list of a grant says what is allowed. An empty list allows nothing,
/// so that a truncated grant does not become a wider one; `*` allows everything. A cluster-scoped object needs `*` in
/// the namespaces, except a Namespace, which is covered by its own name. Kinds are `Kind` for the core group, and
/// `Kind.group` or `*.group` for others.
#[must_use]
pub fn refused<'a>(grant: Option<&Grant>, objects: impl IntoIterator<Item = &'a Key>) -> Vec<ObjectNote> {
    let Some(grant) = grant else { return Vec::new() };
    objects.into_iter().filter_map(|key| refusal(grant, key)).collect()
}

fn refusal(grant: &Grant, key: &Key) -> Option<ObjectNote> {
    let note = |what: Uncovered| Some(note(key, Reason::NotCovered(what)));
    let namespace = key.affected_namespace();
    let in_namespace = |granted: &String| granted == "*" || Some(granted.as_str()) == namespace;
    if !grant.namespaces.iter().any(in_namespace) {
        return note(
            namespace.map_or(Uncovered::ClusterScoped, |name| Uncovered::Namespace(name.to_owned())),
        );
    }
    let kind = if key.group.is_empty() { key.kind.clone() } else { format!("{}.{}", key.kind, key.group) };
    let of_kind = |granted: &String| {
        granted == "*"
            || *granted == kind
            || granted.strip_prefix("*.").is_some_and(|group| !group.is_empty() && group == key.group)
    };
    if !grant.kinds.iter().any(of_kind) {
        return note(Uncovered::Kind(kind));
    }
    None
}

#[cfg(test)]
mod tests {
    use brokkr_api::SequenceId;
    use brokkr_api::ids::{Checksum, StackId};
    use brokkr_api::stacks::DriftPolicy;
    use jiff::Timestamp;

    use super::*;

    fn target(project: &str, grant: Option<Grant>) -> TargetStack {
        TargetStack {
            project: project.into(),
            stack_id: StackId::generate(),
            stack_name: "web".into(),
            sequence_id: SequenceId(1),
            checksum: Checksum::of(b""),
            parsed_digest: Checksum::of(b""),
            removal: None,
            withdrawn: false,
            wave_wait_seconds: None,
            rerun: Vec::new(),
            schedule: None,
            suspensions: Vec::new(),
            health_rules: None,
            drift: DriftPolicy::default(),
            grant,
            approvals: Vec::new(),
            published_at: Timestamp::UNIX_EPOCH,
            targeted_at: Timestamp::UNIX_EPOCH,
            released_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn account(name: &str) -> Option<Grant> {
        Some(Grant { account: Some(name.into()), ..Grant::default() })
    }

    #[test]
    fn the_grant_names_the_account_and_only_the_default_project_needs_none() {
        assert_eq!(acting(&target("default", None)).unwrap().user(), None);
        assert_eq!(acting(&target("default", Some(Grant::default()))).unwrap().user(), None);
        for project in ["default", "shop"] {
            let acting = acting(&target(project, account("shop/brokkr-shop"))).unwrap();
            assert_eq!(acting.user().as_deref(), Some("system:serviceaccount:shop:brokkr-shop"));
        }
        for grant in [None, Some(Grant::default())] {
            let refusal = acting(&target("shop", grant)).unwrap_err();
            assert_eq!(refusal, Reason::NoAccount { project: "shop".into() });
        }
    }

    #[test]
    fn accounts_outside_the_fence_are_never_impersonated() {
        for wrong in [
            "shop/deployer",
            "brokkr-shop",
            "/brokkr-shop",
            "shop/brokkr-",
            "brokkr-system/brokkr-agent",
            "shop/brokkr-x:y",
            "shop/brokkr-a/b",
            "",
        ] {
            assert!(acting(&target("default", account(wrong))).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_grant_covers_only_what_it_lists() {
        let grant = |namespaces: &[&str], kinds: &[&str]| Grant {
            namespaces: namespaces.iter().map(ToString::to_string).collect(),
            kinds: kinds.iter().map(ToString::to_string).collect(),
            account: None,
        };
        let refuses =
            |grant: &Grant, key: &str| !refused(Some(grant), [&key.parse::<Key>().unwrap()]).is_empty();
        let shop = grant(&["shop"], &["ConfigMap", "Namespace", "Deployment.apps", "*.example.com"]);
        for covered in
            ["/ConfigMap/shop/a", "apps/Deployment/shop/a", "example.com/Widget/shop/a", "/Namespace//shop"]
        {
            assert!(!refuses(&shop, covered), "{covered}");
        }
        for beyond in [
            "/ConfigMap/bank/a",
            "/Secret/shop/a",
            "batch/Deployment/shop/a",
            "other.example.com/Widget/shop/a",
            "/Namespace//bank",
            "apiextensions.k8s.io/CustomResourceDefinition//widgets.example.com",
        ] {
            assert!(refuses(&shop, beyond), "{beyond}");
        }
        let all = grant(&["*"], &["*"]);
        assert!(!refuses(&all, "apiextensions.k8s.io/CustomResourceDefinition//widgets.example.com"));
        assert!(refuses(&Grant::default(), "/ConfigMap/shop/a"), "an empty list allows nothing");
        assert!(refused(None, [&"/ConfigMap/shop/a".parse::<Key>().unwrap()]).is_empty());
        let notes = refused(Some(&shop), [&"/Secret/shop/a".parse::<Key>().unwrap()]);
        assert_eq!(notes[0].reason, Reason::NotCovered(Uncovered::Kind("Secret".into())));
    }

    #[test]
    fn c6_nothing_in_the_agents_own_namespace_may_be_part_of_a_stack() {
        let own = |home: &str, key: &str| !in_own_namespace(home, [&key.parse::<Key>().unwrap()]).is_empty();
        for key in ["/Secret/edge/brokkr-agent-identity", "apps/Deployment/edge/web", "/Namespace//edge"] {
            assert!(own("edge", key), "{key}");
            assert!(!own("brokkr-system", key), "{key}");
        }
        assert!(!own("edge", "rbac.authorization.k8s.io/ClusterRole//edge"), "not a namespace");
    }
}
