//! Finds missing rights before the first write.
//!
//! A write without rights would fail anyway; this finds all missing rights of a stack at once, with their verbs. The API
//! server returns the rules of an account in a namespace (SelfSubjectRulesReview), and a pure function evaluates them. If
//! the server cannot list all rules, nothing counts as missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brokkr_api::reason::{ObjectRef, Reason};
use brokkr_api::report::ObjectNote;
use brokkr_install::rights::ALLOWED_ROLES;
use brokkr_manifest::Key;
use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::request::Cluster;
use super::write::Writes;
use super::{classify, granting};
use crate::model::Failure;
use crate::observe::Scope;
use crate::resource::Kind;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
/// How long the result of a review is cached.
const FRESH: Duration = Duration::from_secs(5);
/// The number of reviews that run at the same time.
const REVIEWS: usize = 8;
/// A review needs a namespace. In one that does not exist, only rules for the whole cluster apply.
const ANY_NAMESPACE: &str = "brokkr-nowhere";

const READS: [&str; 3] = ["get", "list", "watch"];
const WRITES: [&str; 3] = ["create", "patch", "delete"];

/// The relevant part of the response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rules {
    resource_rules: Vec<Rule>,
    /// The server has rules that it cannot list.
    incomplete: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// Returns whether a list of a rule contains the value, or everything.
fn has(list: &[String], value: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == value)
}

impl Rules {
    /// Returns whether a verb is allowed on objects of a kind: on those with these names, or on all if there are none.
    fn allow(&self, verb: &str, kind: &Kind, names: &[&str]) -> bool {
        let covers = |rule: &&Rule| {
            has(&rule.verbs, verb) && has(&rule.api_groups, &kind.group) && has(&rule.resources, &kind.plural)
        };
        let rules = || self.resource_rules.iter().filter(covers);
        let is_named = |name: &&str| rules().any(|rule| rule.resource_names.iter().any(|it| it == name));
        self.incomplete
            || rules().any(|rule| rule.resource_names.is_empty())
            || !names.is_empty() && names.iter().all(is_named)
    }
}

/// An account (none for the agent itself) in a namespace.
type RulesKey = (Option<String>, String);

/// The time of the review, and its result.
type CachedRules = (Instant, Arc<Rules>);

/// A short-lived cache of the rights of accounts.
#[derive(Clone)]
pub struct Rights {
    scope: Scope,
    known: Arc<Mutex<HashMap<RulesKey, CachedRules>>>,
}

impl Rights {
    /// `scope` is where the agent watches, which determines where it needs `list` and `watch`.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self { scope, known: Arc::default() }
    }

    /// Returns whether the identity may bind roles in a namespace, or in the whole cluster, without having their
    /// permissions.
    pub async fn may_bind(&self, writes: &Writes, namespace: Option<&str>) -> Result<bool, Failure> {
        let namespace = namespace.unwrap_or(ANY_NAMESPACE);
        let rules = self.rules(writes.cluster(), writes.user(), namespace).await?;
        let binds = |rule: &Rule| has(&rule.verbs, "bind") && has(&rule.api_groups, granting::GROUP);
        Ok(rules.incomplete || rules.resource_rules.iter().any(binds))
    }

    /// Returns whether `--allow-role` lists this role for the identity.
    pub async fn allow_role(&self, writes: &Writes, role: &str) -> Result<bool, Failure> {
        let (group, resource) = ALLOWED_ROLES;
        let rules = self.rules(writes.cluster(), writes.user(), ANY_NAMESPACE).await?;
        let lists = |rule: &Rule| {
            rule.api_groups.iter().any(|it| it == group)
                && rule.resources.iter().any(|it| it == resource)
                && rule.resource_names.iter().any(|it| it == role)
        };
        Ok(rules.resource_rules.iter().any(lists))
    }

    /// Returns the missing rights for these objects: to read with the agent's account, and to
    /// write with the identity of `writes`.
    pub async fn missing(
        &self,
        writes: &Writes,
        objects: impl Iterator<Item = (&Kind, &Key)>,
    ) -> Result<Vec<ObjectNote>, Failure> {
        let mut names: BTreeMap<(&Kind, Option<&str>), Vec<&str>> = BTreeMap::new();
        for (kind, key) in objects {
            let namespace = key.namespace.as_deref().filter(|_| kind.namespaced);
            names.entry((kind, namespace)).or_default().push(&key.name);
        }
        // The reviews of all namespaces run at the same time; `lacking` then finds them in the cache.
        let mut namespaces: BTreeSet<&str> =
            names.keys().map(|(_, namespace)| namespace.unwrap_or(ANY_NAMESPACE)).collect();
        if matches!(self.scope, Scope::Cluster) {
            namespaces.insert(ANY_NAMESPACE);
        }
        let users = BTreeSet::from([None, writes.user()]);
        let reviews: Vec<(Option<&str>, &str)> =
            namespaces.iter().flat_map(|namespace| users.iter().map(|user| (*user, *namespace))).collect();
        for some in reviews.chunks(REVIEWS) {
            let reviews = some.iter().map(|(user, namespace)| self.rules(writes.cluster(), *user, namespace));
            try_join_all(reviews).await?;
        }
        let mut missing = Vec::new();
        for ((kind, namespace), names) in names {
            let verbs = self.lacking(writes, kind, namespace, &names).await?;
            if !verbs.is_empty() {
                missing.push(note(kind, namespace, &verbs, writes.user()));
            }
        }
        Ok(missing)
    }

    async fn lacking(
        &self,
        writes: &Writes,
        kind: &Kind,
        namespace: Option<&str>,
        names: &[&str],
    ) -> Result<Vec<&'static str>, Failure> {
        let namespace = namespace.unwrap_or(ANY_NAMESPACE);
        let watched_in = match &self.scope {
            Scope::Cluster => ANY_NAMESPACE,
            Scope::Namespaces(_) => namespace,
        };
        let cluster = writes.cluster();
        let mut lacking = Vec::new();
        for verb in READS {
            let (namespace, names) = if verb == "get" { (namespace, names) } else { (watched_in, &[][..]) };
            if !self.rules(cluster, None, namespace).await?.allow(verb, kind, names) {
                lacking.push(verb);
            }
        }
        let rules = self.rules(cluster, writes.user(), namespace).await?;
        lacking.extend(WRITES.iter().filter(|verb| !rules.allow(verb, kind, names)));
        Ok(lacking)
    }

    async fn rules(
        &self,
        cluster: &Cluster,
        user: Option<&str>,
        namespace: &str,
    ) -> Result<Arc<Rules>, Failure> {
        let key = (user.map(ToOwned::to_owned), namespace.to_owned());
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, rules)) = known().get(&key)
            && at.elapsed() < FRESH
        {
            return Ok(rules.clone());
        }
        let rules = Arc::new(review(cluster, user, namespace).await?);
        let mut known = known();
        known.retain(|_, (at, _)| at.elapsed() < FRESH);
        known.insert(key, (Instant::now(), rules.clone()));
        Ok(rules)
    }
}

async fn review(cluster: &Cluster, user: Option<&str>, namespace: &str) -> Result<Rules, Failure> {
    #[derive(Deserialize)]
    struct Review {
        status: Rules,
    }
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    let reply = cluster.review(PATH, user, &body).await?;
    if !reply.status.is_success() {
        return Err(classify::refusal(reply.status, &reply.body, None, false));
    }
    let review: Review = serde_json::from_slice(&reply.body)
        .map_err(|error| classify::unreachable(&format!("failed to parse the access review: {error}")))?;
    Ok(review.status)
}

fn note(kind: &Kind, namespace: Option<&str>, verbs: &[&str], user: Option<&str>) -> ObjectNote {
    let resource =
        if kind.group.is_empty() { kind.plural.clone() } else { format!("{}.{}", kind.plural, kind.group) };
    let reason = Reason::Forbidden {
        account: user.map(ToOwned::to_owned),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        resource: Some(resource),
        namespace: namespace.map(ToOwned::to_owned),
    };
    let object = ObjectRef {
        group: kind.group.clone(),
        kind: kind.kind.clone(),
        namespace: namespace.map(ToOwned::to_owned),
        name: String::new(),
    };
    ObjectNote { object, message: reason.message(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Served;

    fn kind(group: &str, plural: &str) -> Kind {
        let (group, plural) = (group.into(), plural.into());
        Kind::from(Served { group, version: "v1".into(), kind: "K".into(), plural, namespaced: true })
    }

    fn rules(rules: serde_json::Value) -> Rules {
        serde_json::from_value(json!({"incomplete": false, "nonResourceRules": [], "resourceRules": rules}))
            .unwrap()
    }

    #[test]
    fn rules_are_read_as_the_api_server_reads_them() {
        let given = rules(json!([
            {"verbs": ["get", "patch"], "apiGroups": ["apps"], "resources": ["deployments"]},
            {"verbs": ["list"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]},
            {"verbs": ["delete"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"]},
            {"verbs": ["delete"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["three"]},
            {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/exec"]},
        ]));
        let table = [
            ("patch", "apps", "deployments", true),
            ("create", "apps", "deployments", false),
            ("patch", "batch", "deployments", false),
            ("patch", "apps", "statefulsets", false),
            ("list", "any.example.com", "things", true),
            ("delete", "", "configmaps", true),
            ("delete", "", "secrets", false),
            ("create", "", "pods", false),
        ];
        for (verb, group, plural, allowed) in table {
            assert_eq!(given.allow(verb, &kind(group, plural), &[]), allowed, "{verb} {plural}.{group}");
        }
        assert!(!Rules::default().allow("get", &kind("", "pods"), &[]), "no rule allows it");
        let secrets = kind("", "secrets");
        assert!(given.allow("delete", &secrets, &["one"]), "the rule is for this name");
        assert!(given.allow("delete", &secrets, &["one", "three"]), "two rules");
        assert!(!given.allow("delete", &secrets, &["one", "two"]));
    }

    #[test]
    fn incomplete_rules_allow_everything() {
        let unsure = Rules { incomplete: true, ..Rules::default() };
        assert!(unsure.allow("patch", &kind("apps", "deployments"), &["web"]));
    }

    #[test]
    fn missing_verbs_are_listed() {
        let missing = note(&kind("apps", "deployments"), Some("shop"), &["create", "patch"], None);
        assert_eq!(
            missing.message.to_string(),
            "this agent may not create or patch deployments.apps in namespace shop"
        );
        let missing =
            note(&kind("", "namespaces"), None, &["patch"], Some("system:serviceaccount:a:brokkr-b"));
        assert_eq!(
            missing.message.to_string(),
            "this agent, acting as system:serviceaccount:a:brokkr-b, may not patch namespaces in the cluster"
        );
    }
}
