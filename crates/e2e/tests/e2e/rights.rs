//! Permissions: the agent uses exactly those that `deploy/` grants, according to the API server's audit log.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use brokkr_agent::execute::{Cluster as ApiServer, Rights};
use brokkr_agent::grant;
use brokkr_agent::observe::Scope;
use brokkr_agent::resource::{Kind, Served};
use brokkr_api::SequenceId;
use brokkr_api::envelope::TargetStack;
use brokkr_api::ids::{Checksum, StackId};
use brokkr_manifest::Key;
use brokkr_testkit::agent::{ACCOUNT, install};
use brokkr_testkit::audit::Request;
use brokkr_testkit::{AgentOptions, Cluster, Fleet, eventually, unique};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;
use serde_json::Value;

use brokkr_testkit::world::{WAIT_TIMEOUT, World, config_map_yaml, deployment_yaml, namespace_yaml};

/// Returns an object of every API group of the profile `platform`, and a namespace.
fn everything(space: &str) -> String {
    let members = format!(
        "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: nightly, namespace: {space}}}\n\
         spec: {{schedule: '0 0 1 1 *', jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, \
         containers: [{{name: a, image: registry.example/a}}]}}}}}}}}}}\n\
         ---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: web, namespace: {space}}}\n\
         spec: {{maxReplicas: 2, scaleTargetRef: {{apiVersion: v1, kind: ReplicationController, name: none}}}}\n\
         ---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: web, namespace: {space}}}\n\
         spec: {{maxUnavailable: 1, selector: {{matchLabels: {{app: none}}}}}}\n\
         ---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: web, namespace: {space}}}\n\
         spec: {{podSelector: {{}}}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web, namespace: {space}}}\n\
         addressType: IPv4\nendpoints: []\n\
         ---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: web, namespace: {space}}}\n\
         spec: {{holderIdentity: nobody}}\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: web, namespace: {space}}}\n\
         rules: [{{apiGroups: [''], resources: [configmaps], verbs: [get]}}]\n"
    );
    let cluster_wide = format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: {space}}}\n\
         webhooks: []\n\
         ---\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: v1.{space}.example.org}}\n\
         spec: {{group: {space}.example.org, version: v1, groupPriorityMinimum: 100, versionPriority: 100}}\n\
         ---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {space}}}\nprovisioner: example.com/none\n\
         ---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{name: {space}}}\nvalue: 7\n\
         ---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {{name: {space}}}\nhandler: none\n\
         ---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.{space}.example.com}}\n\
         spec:\n  group: {space}.example.com\n  scope: Namespaced\n  names: {{plural: things, singular: thing, kind: Thing}}\n  \
         versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]\n"
    );
    [
        namespace_yaml(space),
        config_map_yaml(space, "one", "1"),
        config_map_yaml(space, "two", "2"),
        deployment_yaml(space, "web", 1),
        members,
        cluster_wide,
    ]
    .concat()
}

/// A group and a verb: `apps get`.
type Use = (String, String);

fn used(requests: &[Request]) -> BTreeSet<Use> {
    let mut used = BTreeSet::new();
    for request in requests.iter().filter(|request| request.code < 400) {
        used.insert((request.group.clone(), request.verb.clone()));
        // A server-side apply that creates an object needs both permissions.
        if request.verb == "patch" && request.code == 201 {
            used.insert((request.group.clone(), "create".into()));
        }
    }
    used
}

/// Verbs that the agent has only in order to grant them.
const ONLY_GRANTED: [&str; 4] = ["update", "deletecollection", "escalate", "bind"];

fn granted(rules: &[PolicyRule]) -> BTreeSet<Use> {
    let uses = |rule: &PolicyRule| {
        let groups = rule.api_groups.clone().unwrap_or_default();
        let verbs = rule.verbs.clone();
        groups
            .into_iter()
            .flat_map(move |group| verbs.clone().into_iter().map(move |verb| (group.clone(), verb)))
    };
    // The permission to list every kind is used before a namespace is deleted, and belongs to no group. Events are only
    // granted to others.
    let is_used = |(group, verb): &Use| {
        !["*", "events.k8s.io"].contains(&group.as_str()) && !ONLY_GRANTED.contains(&verb.as_str())
    };
    rules.iter().flat_map(uses).filter(is_used).collect()
}

fn refused(requests: &[Request]) -> Vec<String> {
    let describe = |request: &Request| format!("{} {}: {}", request.verb, request.uri, request.code);
    requests.iter().filter(|request| matches!(request.code, 401 | 403)).map(describe).collect()
}

/// Returns the permissions of the agent, from the roles in the cluster.
async fn rights_of(world: &World) -> Result<BTreeSet<Use>> {
    let mut rules = Vec::new();
    for name in
        ["brokkr-agent-apps", "brokkr-agent-all-namespaces", "brokkr-agent-platform", "brokkr-agent-records"]
    {
        let role = Api::<ClusterRole>::all(world.client.clone()).get(name).await?;
        rules.extend(role.rules.context("rules")?);
    }
    let own: Api<Role> = Api::namespaced(world.client.clone(), world.agent.namespace());
    rules.extend(own.get("brokkr-agent").await?.rules.context("rules")?);
    Ok(granted(&rules))
}

/// Delivers, repairs, prunes, restarts and deletes, and compares the requests with the permissions.
#[tokio::test]
async fn every_cluster_wide_permission_is_used_and_none_is_missing() -> Result<()> {
    let world = World::start().await?;
    let space = world.namespace.clone();
    world.fleet.apply("web", "env=prod", &everything(&space)).await?;

    let granted = rights_of(&world).await?;
    let unused = |which: fn(&Use) -> bool| {
        let used = used(&world.agent.requests(Default::default())?);
        let unused: Vec<_> = granted.difference(&used).filter(|granted| which(granted)).collect();
        ensure!(unused.is_empty(), "granted and never used: {unused:?}");
        anyhow::Ok(())
    };

    // Repair: a changed object, a deleted one, and one without its label, which has to be read.
    world.edit("one", "changed").await?;
    world.wait_for_value("one", "1").await?;
    world.cluster.kubectl(["delete", "configmap", "two", "-n", &space]).await?.ok()?;
    world.wait_for_value("two", "2").await?;
    let definition = format!("things.{space}.example.com");
    let inside = ["deployment", "cronjob", "hpa", "pdb", "networkpolicy", "endpointslice", "lease", "role"];
    let names = inside.map(|kind| (kind, if kind == "cronjob" { "nightly" } else { "web" }));
    let cluster_wide = ["storageclass", "priorityclass", "runtimeclass"].map(|kind| (kind, space.as_str()));
    let service = format!("v1.{space}.example.org");
    let others = [
        ("crd", definition.as_str()),
        ("validatingwebhookconfiguration", space.as_str()),
        ("apiservice", service.as_str()),
    ];
    let all: Vec<_> = names.into_iter().chain(cluster_wide).chain(others).collect();
    // Again until every kind was read: an object that the agent applies just then gets its label back without a read.
    eventually(WAIT_TIMEOUT, "every kind to be read", async || {
        for (kind, name) in &all {
            world.cluster.kubectl(["label", kind, name, "-n", &space, "brokkr.io/agent-"]).await?.ok()?;
        }
        unused(|(group, verb)| verb == "get" && group != "brokkr.io")
    })
    .await?;
    // And its own record, deleted by hand (E5).
    let agent = world.fleet.agent("shop-1").await?.context("the agent")?["id"].clone();
    let label = format!("brokkr.io/agent={}", agent.as_str().context("an id")?);
    world.cluster.kubectl(["delete", "stacks.brokkr.io", "-l", &label, "--wait=false"]).await?.ok()?;
    eventually(WAIT_TIMEOUT, "the record to be read", async || unused(|(_, verb)| verb == "get")).await?;
    let settled = |status: &Value| status["state"] == "healthy";
    world.wait_for_status("web", "shop-1", "healthy again", settled).await?;

    world.agent.restart()?;
    world.fleet.apply("web", "env=prod", &world.manifest(&[("one", "1")])).await?;
    world.wait_until_gone("two").await?;
    world.fleet.delete("web").await?;

    eventually(WAIT_TIMEOUT, "every permission to be used", async || unused(|_| true)).await?;
    let requests = world.agent.requests(Default::default())?;
    assert!(refused(&requests).is_empty(), "needed and not granted: {:?}", refused(&requests));
    Ok(())
}

/// Starts an agent with access to only one namespace.
async fn narrow_world() -> Result<World> {
    let cluster = Cluster::shared().await?;
    let (fleet, space) = (Fleet::start().await?, unique("space"));
    cluster.kubectl(["create", "namespace", &space]).await?.ok()?;
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let options = AgentOptions {
        install: words(&["--profile", "namespaces", "--target-namespace", &space]),
        arguments: words(&["--namespaces", &space]),
        ..AgentOptions::default()
    };
    let world = World::start_in(cluster, fleet, &options).await?;
    Ok(World { namespace: space, ..world })
}

#[tokio::test]
async fn access_to_listed_namespaces_is_enough_to_deliver_repair_prune_and_delete() -> Result<()> {
    let world = narrow_world().await?;
    let space = &world.namespace;
    let both = [
        config_map_yaml(space, "one", "1"),
        config_map_yaml(space, "two", "2"),
        deployment_yaml(space, "web", 1),
    ]
    .concat();
    world.fleet.apply("web", "env=prod", &both).await?;
    world.edit("one", "changed").await?;
    world.wait_for_value("one", "1").await?;
    world.cluster.kubectl(["delete", "configmap", "two", "-n", space]).await?.ok()?;
    world.wait_for_value("two", "2").await?;
    world.fleet.apply("web", "env=prod", &config_map_yaml(space, "one", "3")).await?;
    world.wait_until_gone("two").await?;
    world.fleet.delete("web").await?;
    world.wait_until_gone("one").await?;
    let requests = world.agent.requests(Default::default())?;
    assert!(refused(&requests).is_empty(), "needed and not granted: {:?}", refused(&requests));
    let elsewhere: Vec<_> = requests
        .iter()
        .filter(|request| request.is_watch() && request.namespace != *space && request.group != "brokkr.io")
        .collect();
    assert!(elsewhere.is_empty(), "watched outside: {elsewhere:?}");
    Ok(())
}

/// Missing permissions are known before the first write, verb by verb.
#[tokio::test]
async fn missing_permissions_are_named_verb_by_verb() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let (home, space) = (unique("brokkr-rights"), unique("space"));
    cluster.kubectl(["create", "namespace", &space]).await?.ok()?;
    install(&cluster, &home, &["--profile", "namespaces", "--target-namespace", &space]).await?;
    let server = ApiServer::new(cluster.client_for(&home, ACCOUNT).await?, 4);
    let target: TargetStack = serde_json::from_value(serde_json::json!({
        "project": "default", "stack_id": StackId::generate(), "stack_name": "web", "sequence_id": SequenceId(1),
        "checksum": Checksum::of(b""), "parsed_digest": Checksum::of(b""), "published_at": "2026-01-01T00:00:00Z",
        "targeted_at": "2026-01-01T00:00:00Z", "released_at": "2026-01-01T00:00:00Z",
    }))?;
    let writes = server.acting_as(&grant::acting(&target).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?);
    let kind = |group: &str, plural: &str, namespaced| {
        Kind::from(Served {
            group: group.into(),
            version: "v1".into(),
            kind: "Any".into(),
            plural: plural.into(),
            namespaced,
        })
    };
    let key = |namespace: Option<&str>| Key {
        group: String::new(),
        kind: "Any".into(),
        namespace: namespace.map(ToOwned::to_owned),
        name: "web".into(),
    };
    let objects = [
        (kind("", "configmaps", true), key(Some(&space))),
        (kind("apps", "deployments", true), key(Some("elsewhere"))),
        (kind("", "namespaces", false), key(None)),
    ];
    let wanted = |count: usize| objects[..count].iter().map(|(kind, key)| (kind, key));
    let all = "get, list, watch, create, patch or delete";
    let missing = Rights::new(Scope::Namespaces(vec![space.clone()])).missing(&writes, wanted(3)).await;
    let messages: Vec<String> = missing
        .map_err(|failure| anyhow::anyhow!("{failure:?}"))?
        .into_iter()
        .map(|note| note.message.to_string())
        .collect();
    assert_eq!(
        messages,
        [
            format!("this agent may not {all} namespaces in the cluster"),
            format!("this agent may not {all} deployments.apps in namespace elsewhere"),
        ]
    );

    // Watching the whole cluster needs cluster-wide permissions.
    let missing = Rights::new(Scope::Cluster).missing(&writes, wanted(1)).await;
    let messages = missing.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
    assert_eq!(
        messages[0].message.to_string(),
        format!("this agent may not list or watch configmaps in namespace {space}")
    );
    Ok(())
}

/// Installing again with fewer permissions removes the others.
#[tokio::test]
async fn installing_again_with_fewer_permissions_removes_the_others() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let (home, one, two) = (unique("brokkr-rights"), unique("space"), unique("space"));
    for space in [&one, &two] {
        cluster.kubectl(["create", "namespace", space]).await?.ok()?;
    }
    let bound = async || -> Result<Vec<String>> {
        let label = format!("brokkr.io/rights-of={home}");
        let list =
            ["get", "rolebindings,clusterrolebindings,roles,clusterroles", "-A", "-l", &label, "-o", "json"];
        let list: Value = cluster.kubectl(list).await?.ok()?.json()?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let describe = |item: &Value| {
            let namespace = item["metadata"]["namespace"].as_str().unwrap_or("*");
            let name = item["metadata"]["name"].as_str().unwrap_or_default().trim_end_matches(&home);
            format!("{namespace} {} {name}", item["kind"].as_str().unwrap_or_default())
        };
        Ok(items.iter().map(describe).collect::<BTreeSet<_>>().into_iter().collect())
    };
    install(&cluster, &home, &["--kind", "*.example.com", "--impersonate", &format!("{one}/brokkr-x")])
        .await?;
    assert_eq!(bound().await?.len(), 10, "{:?}", bound().await?);
    let both = format!("{one},{two}");
    install(&cluster, &home, &["--profile", "namespaces", "--target-namespace", &both]).await?;
    install(&cluster, &home, &["--profile", "namespaces", "--target-namespace", &one]).await?;
    let kept = [
        "* ClusterRoleBinding brokkr-agent-records.".to_owned(),
        "default Role brokkr-agent-events.".to_owned(),
        "default RoleBinding brokkr-agent-events.".to_owned(),
        format!("{one} RoleBinding brokkr-agent."),
    ];
    assert_eq!(bound().await?.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(kept));
    Ok(())
}
