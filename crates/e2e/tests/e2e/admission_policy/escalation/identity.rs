//! Attempts to act as another account, to change the agent's own namespace, and to remove the fence.

use anyhow::{Context as _, Result};
use http::Method;
use serde_json::{Value, json};

use super::super::{ACCOUNT, Fixture};
use super::{Attempt, apply};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

#[tokio::test]
async fn c6_a_platform_agent_cannot_become_another_account_or_remove_its_fence() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (space, home) = (&fixture.space, &fixture.home);
    let core = format!("/api/v1/namespaces/{space}");
    let pods = |account: &str| json!({"serviceAccountName": account, "containers": [{"name": "a", "image": "registry.example/a"}]});
    let deployment = |name: &str, namespace: &str, account: &str| {
        let labels = json!({"app": "grab"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pods(account)}}})
    };
    let service = |version: &str, group: &str| {
        let name = format!("{version}.{group}");
        let body = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                     "service": {"name": "a", "namespace": space}}});
        (format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}"), body)
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": space}, "spec": pods("default")});
    let created = apply("a Pod", format!("{core}/pods/a"), pod, "");
    let accepted = apply(
        "a Deployment",
        format!("/apis/apps/v1/namespaces/{space}/deployments/a"),
        deployment("a", space, "default"),
        "",
    );
    // The Pod needs its ServiceAccount, which no controller creates at once.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": space}});
    fixture.cluster.apply(&account.to_string()).await?;
    for accepted in [&created, &accepted] {
        assert_eq!(fixture.tries(accepted, None).await?, None);
    }

    let post = |what, path: String, body: Value, refusal| Attempt {
        what,
        method: Method::POST,
        path,
        body,
        refusal,
    };
    let remove = |what, path: String, refusal| Attempt {
        what,
        method: Method::DELETE,
        path,
        body: json!({}),
        refusal,
    };
    let token = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "namespace": space, "annotations": {"kubernetes.io/service-account.name": "default"}}});
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let mut once = pods("brokkr-shop");
    once["restartPolicy"] = json!("Never");
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a", "namespace": space}, "spec":
        {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": once}}}}});
    let node_token = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": space}});
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": {},
        "metadata": {"name": "a", "namespace": space}});
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": home}});
    let identity = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "brokkr-agent-identity", "namespace": home}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.brokkr.io"}, "spec": {"group": "brokkr.io", "scope": "Cluster",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    let ((apps, apps_body), (records, records_body)) = (service("v1", "apps"), service("v2", "brokkr.io"));
    let own = "this is the namespace of an agent";
    fixture
        .all_refused(&[
            apply("a token of a node", format!("{core}/secrets/bootstrap-token-abcdef"), node_token, "tokens of ServiceAccounts or nodes"),
            apply(
                "a template that a StatefulSet uses",
                format!("/apis/apps/v1/namespaces/{space}/controllerrevisions/a"),
                revision,
                "cannot patch resource",
            ),
            apply(
                "an account that a grant names",
                format!("{core}/serviceaccounts/brokkr-shop"),
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "brokkr-shop", "namespace": space}}),
                "Brokkr's own namespace, accounts, permissions or fence",
            ),
            apply("a token as a Secret", format!("{core}/secrets/t"), token, "tokens of ServiceAccounts or nodes"),
            post("a token", format!("{core}/serviceaccounts/default/token"), request, "cannot create resource"),
            apply(
                "a Deployment as Brokkr's account",
                format!("/apis/apps/v1/namespaces/{space}/deployments/b"),
                deployment("b", space, "brokkr-shop"),
                "must not run Pods as a ServiceAccount named brokkr-…",
            ),
            apply(
                "a CronJob as Brokkr's account",
                format!("/apis/batch/v1/namespaces/{space}/cronjobs/a"),
                cron,
                "must not run Pods as a ServiceAccount named brokkr-…",
            ),
            apply(
                "a Deployment at home",
                format!("/apis/apps/v1/namespaces/{home}/deployments/brokkr-agent"),
                deployment("brokkr-agent", home, "default"),
                own,
            ),
            apply("an object of a stack at home", format!("/api/v1/namespaces/{home}/configmaps/a"), map("a"), own),
            apply("its identity", format!("/api/v1/namespaces/{home}/secrets/brokkr-agent-identity"), identity, own),
            apply("a system namespace", "/api/v1/namespaces/kube-system".into(), namespace, "must not change system namespaces"),
            apply("the API of Kubernetes", apps, apps_body, "must not replace the API"),
            apply("Brokkr's API", records, records_body, "must not replace the API"),
            apply(
                "another kind of Brokkr",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.brokkr.io".into(),
                definition,
                "must not change Brokkr's own kinds",
            ),
            apply(
                "a status",
                format!("{core}/pods/a/status"),
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": space}, "status": {"phase": "Running"}}),
                "may use the subresource pods/status",
            ),
            post("a shell", format!("{core}/pods/a/exec?command=sh&stdin=true"), json!({}), "cannot create resource"),
            remove("the fence", format!("{ADMISSION}/validatingadmissionpolicies/brokkr-fence"), "cannot delete resource"),
            remove(
                "the binding of the fence",
                format!("{ADMISSION}/validatingadmissionpolicybindings/brokkr-fence"),
                "cannot delete resource",
            ),
        ])
        .await?;

    // An account of a grant that has these permissions: here only the fence refuses them.
    let strong = "rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": ["", "apps"], "verbs": ["*"],
        "resources": ["pods/exec", "pods/status", "serviceaccounts/token", "controllerrevisions"]}]);
    let role = json!({"apiVersion": strong, "kind": "Role", "metadata": {"name": "strong", "namespace": space}, "rules": rules});
    let binding = json!({"apiVersion": strong, "kind": "RoleBinding", "metadata": {"name": "strong", "namespace": space},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "strong"},
        "subjects": [{"kind": "ServiceAccount", "name": "brokkr-shop", "namespace": space}]});
    for object in [role, binding] {
        fixture.cluster.apply(&object.to_string()).await?;
    }
    let shop = Fixture { client: fixture.cluster.client_for(space, "brokkr-shop").await?, ..fixture };
    let (space, core) = (&shop.space, format!("/api/v1/namespaces/{}", shop.space));
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": {},
        "metadata": {"name": "a", "namespace": space, "labels": {"brokkr.io/agent": shop.agent.to_string()}}});
    shop.all_refused(&[
        post(
            "a token",
            format!("{core}/serviceaccounts/default/token"),
            request,
            "the subresource serviceaccounts/token",
        ),
        post(
            "a shell",
            format!("{core}/pods/a/exec?command=sh&stdin=true"),
            json!({}),
            "the subresource pods/exec",
        ),
        post(
            "a template that a StatefulSet uses",
            format!("/apis/apps/v1/namespaces/{space}/controllerrevisions"),
            revision,
            "must not contain ControllerRevisions",
        ),
    ])
    .await?;
    let fixture = Fixture { client: shop.cluster.client_for(&shop.home, ACCOUNT).await?, ..shop };

    let secrets = Attempt {
        method: Method::GET,
        ..remove("everything as an administrator", "/api/v1/secrets".into(), "")
    };
    let refusal =
        fixture.tries(&secrets, Some("system:masters")).await?.context("impersonated system:masters")?;
    assert!(refusal.contains("cannot impersonate"), "{refusal}");
    Ok(())
}
