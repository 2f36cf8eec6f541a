//! Attempts of a compromised agent with the profile `platform` to gain more than it was given. All are made with its own
//! account, and with the label that makes its objects its own.

mod identity;

use anyhow::{Context as _, Result, ensure};
use brokkr_testkit::unique;
use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::Fixture;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A request, and a part of the message with which it must be refused.
struct Attempt {
    what: &'static str,
    method: Method,
    path: String,
    body: Value,
    refusal: &'static str,
}

fn apply(what: &'static str, path: String, body: Value, refusal: &'static str) -> Attempt {
    Attempt { what, method: Method::PATCH, path, body, refusal }
}

impl Fixture {
    /// Sends a request as the agent. Returns the message of the refusal; none if it was accepted.
    async fn tries(&self, attempt: &Attempt, impersonating: Option<&str>) -> Result<Option<String>> {
        let mut body = attempt.body.clone();
        let (path, content_type) = match attempt.method {
            Method::PATCH => {
                body["metadata"]["labels"]["brokkr.io/agent"] = json!(self.agent.to_string());
                (format!("{}?fieldManager=brokkr&force=true", attempt.path), "application/apply-patch+yaml")
            }
            _ => (attempt.path.clone(), "application/json"),
        };
        let mut request = http::Request::builder()
            .method(attempt.method.clone())
            .uri(path)
            .header(CONTENT_TYPE, content_type);
        if let Some(user) = impersonating {
            request = request.header("Impersonate-User", "jo").header("Impersonate-Group", user);
        }
        match self.client.request_text(request.body(body.to_string().into_bytes())?).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
            Err(error) => Err(error).context(attempt.what),
        }
    }

    /// Fails unless each attempt is refused with its message.
    async fn all_refused(&self, attempts: &[Attempt]) -> Result<()> {
        for attempt in attempts {
            let refusal = self.tries(attempt, None).await?;
            let refusal = refusal.with_context(|| format!("{}: accepted", attempt.what))?;
            ensure!(refusal.contains(attempt.refusal), "{}: {refusal}", attempt.what);
        }
        Ok(())
    }
}

fn cluster_role(name: &str, more: &Value) -> (String, Value) {
    let mut body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    (format!("{RBAC}/clusterroles/{name}"), body)
}

fn cluster_binding(name: &str, role: &str, subject: &Value) -> (String, Value) {
    let body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [subject],
    });
    (format!("{RBAC}/clusterrolebindings/{name}"), body)
}

fn rule(group: &str, resource: &str, verb: &str) -> Value {
    json!({"rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]})
}

#[tokio::test]
async fn c6_a_platform_agent_grants_neither_itself_nor_others_more_than_the_fence_allows() -> Result<()> {
    let fixture = Fixture::new().await?;
    let name = &unique("grab");
    let own = json!({"kind": "ServiceAccount", "name": "brokkr-agent", "namespace": fixture.home});
    let own_user = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io",
        "name": format!("system:serviceaccount:{}:brokkr-agent", fixture.home)});
    let everyone =
        json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"});
    let helper = json!({"kind": "ServiceAccount", "name": "helper", "namespace": fixture.space});

    // What operators need is accepted: otherwise the refusals below would prove nothing.
    let harmless = json!({"rules": [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "deployments/status"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"], "verbs": ["update"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["sign"]},
    ]});
    for (path, body) in [
        cluster_role(name, &harmless),
        cluster_binding(name, name, &helper),
        cluster_binding(&format!("{name}-view"), "view", &helper),
        cluster_binding(&format!("{name}-auth"), "system:auth-delegator", &helper),
    ] {
        let accepted = fixture.tries(&apply("what operators need", path, body, ""), None).await?;
        assert_eq!(accepted, None);
    }

    let grants = |what, rules: Value, refusal| {
        let (path, body) = cluster_role(&format!("{name}-x"), &rules);
        apply(what, path, body, refusal)
    };
    let binds = |what, role: &str, subject: &Value, refusal| {
        let (path, body) = cluster_binding(&format!("{name}-x"), role, subject);
        apply(what, path, body, refusal)
    };
    let aggregates = |what, selector: Value| {
        let rule = json!({"aggregationRule": {"clusterRoleSelectors": [selector]}});
        grants(what, rule, "must not aggregate roles")
    };
    let named = |resource: &str, names: &[&str]| {
        json!({"rules": [{"apiGroups": ["certificates.k8s.io"], "resources": [resource], "resourceNames": names,
                          "verbs": ["approve"]}]})
    };
    let (admin, role) = (json!({}), "rbac.authorization.k8s.io");
    let owners = format!("{name}-owners");
    let owned = [cluster_role(&owners, &rule("*", "*", "*")), cluster_binding(&owners, &owners, &helper)];
    for (_, body) in owned {
        fixture.cluster.apply(&body.to_string()).await?;
    }
    let (_, mut subjects_only) = cluster_binding(&owners, &owners, &helper);
    subjects_only.as_object_mut().context("an object")?.remove("roleRef");
    let (_, mut in_kube_system) = cluster_binding(name, "edit", &helper);
    in_kube_system["kind"] = json!("RoleBinding");
    in_kube_system["metadata"]["namespace"] = json!("kube-system");
    fixture
        .all_refused(&[
            binds(
                "its account to cluster-admin",
                "cluster-admin",
                &own,
                "must not bind the role cluster-admin",
            ),
            binds(
                "another account to cluster-admin",
                "cluster-admin",
                &helper,
                "must not bind the role cluster-admin",
            ),
            binds("its account to a role of its own", name, &own, "accounts named brokkr-…"),
            binds("its account as a user", name, &own_user, "users and groups named system:…"),
            binds("everyone", "view", &everyone, "users and groups named system:…"),
            binds(
                "Brokkr's role",
                "brokkr-agent-platform",
                &helper,
                "must not bind the role brokkr-agent-platform",
            ),
            binds("a node's role", "system:node", &helper, "must not bind the role system:node"),
            binds("edit everywhere", "edit", &helper, "must not bind the role edit"),
            grants("everything", rule("*", "*", "*"), "-x, a stack must not grant * on * in *"),
            grants("reading everything", rule("*", "*", "get"), "must not grant get on * in *"),
            grants("escalate", rule(role, "clusterroles", "escalate"), "must not grant escalate"),
            grants("bind", rule(role, "roles", "bind"), "must not grant bind"),
            grants("all verbs on roles", rule(role, "roles", "*"), "must not grant * on roles"),
            grants("impersonation", rule("", "groups", "impersonate"), "must not grant impersonate"),
            grants(
                "constrained impersonation",
                rule("authentication.k8s.io", "users", "impersonate:user-info"),
                "must not grant impersonate:user-info",
            ),
            grants(
                "all verbs on accounts",
                rule("", "serviceaccounts", "*"),
                "must not grant * on serviceaccounts",
            ),
            grants(
                "tokens",
                rule("", "serviceaccounts/token", "create"),
                "must not grant create on serviceaccounts/token",
            ),
            grants("every core resource", rule("", "*", "create"), "must not grant create on * in core"),
            grants(
                "every signer",
                rule("certificates.k8s.io", "signers", "sign"),
                "must not grant sign on signers",
            ),
            grants(
                "signers of Kubernetes",
                named("signers", &["kubernetes.io/kube-apiserver-client"]),
                "must not grant approve",
            ),
            grants(
                "admission policies",
                rule("admissionregistration.k8s.io", "validatingadmissionpolicies", "delete"),
                "must not grant delete on validatingadmissionpolicies",
            ),
            grants("records", rule("brokkr.io", "stacks", "patch"), "must not grant patch on stacks"),
            grants(
                "an exception",
                rule("brokkr.io", "allowedroles", "use"),
                "must not grant use on allowedroles",
            ),
            aggregates("roles with its own label", json!({"matchLabels": {"example.com/part": name}})),
            aggregates(
                "roles of Helm charts",
                json!({"matchLabels": {"app.kubernetes.io/managed-by": "Helm"}}),
            ),
            aggregates("all roles", json!({})),
            aggregates(
                "roles of Kubernetes",
                json!({"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}),
            ),
            aggregates(
                "roles aggregated to admin",
                json!({"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}),
            ),
            aggregates(
                "roles by expression",
                json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
            ),
            apply(
                "edit in a system namespace",
                format!("{RBAC}/namespaces/kube-system/rolebindings/{name}"),
                in_kube_system,
                "must not bind the role edit here",
            ),
            apply(
                "a role of the cluster's owner",
                format!("{RBAC}/clusterroles/{name}-owners"),
                cluster_role(&format!("{name}-owners"), &rule("", "pods", "get")).1,
                "must not take over an existing role or binding",
            ),
            apply(
                "the subjects of a binding of the cluster's owner",
                format!("{RBAC}/clusterrolebindings/{name}-owners"),
                subjects_only,
                "must not take over an existing role or binding",
            ),
            apply(
                "a role of Kubernetes",
                format!("{RBAC}/clusterroles/admin"),
                cluster_role("admin", &admin).1,
                "kubernetes.io/bootstrapping belong to Kubernetes",
            ),
            apply(
                "Brokkr's own role",
                format!("{RBAC}/clusterroles/brokkr-agent-apps"),
                cluster_role("brokkr-agent-apps", &admin).1,
                // Two policies refuse it, and either may answer.
                "ValidatingAdmissionPolicy 'brokkr-fence",
            ),
        ])
        .await
}
