//! Tests of the engines: they start, and tests are isolated from each other.

use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::postgres::Durability;
use brokkr_testkit::{Attempt, Cluster, Postgres, eventually, unique};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use sqlx::{Connection, Row};

#[tokio::test]
async fn two_databases_of_one_postgres_are_private() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let (one, other) = (postgres.database().await?, postgres.database().await?);
    let mut connection = one.connect().await?;
    sqlx::query("CREATE TABLE mine (id int)").execute(&mut connection).await?;
    let mut connection = other.connect().await?;
    let tables: i64 = sqlx::query("SELECT count(*) FROM pg_tables WHERE tablename = 'mine'")
        .fetch_one(&mut connection)
        .await?
        .get(0);
    assert_eq!(tables, 0);
    Ok(())
}

#[tokio::test]
async fn a_template_is_prepared_once_and_copied() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let template = unique("template").replace('-', "_");
    let prepare = async |url: &str| -> Result<()> {
        let mut connection = sqlx::PgConnection::connect(url).await?;
        sqlx::query("CREATE TABLE ready (id int)").execute(&mut connection).await?;
        Ok(connection.close().await?)
    };
    // A second preparation would fail, because the name of the template is taken.
    for _ in 0..2 {
        let copy = postgres.database_like(&template, prepare).await?;
        let mut connection = copy.connect().await?;
        sqlx::query("INSERT INTO ready VALUES (1)").execute(&mut connection).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_durable_postgres_comes_back_after_a_kill() -> Result<()> {
    let postgres = Postgres::start_with(Durability::Full).await?;
    let database = postgres.database().await?;
    let mut connection = database.connect().await?;
    sqlx::query("CREATE TABLE kept AS SELECT 42 AS id").execute(&mut connection).await?;
    let server = postgres.server().expect("it is our own");
    server.kill9().await?;
    server.start_again().await?;
    let mut connection = database.connect().await?;
    let kept: i32 = sqlx::query("SELECT id FROM kept").fetch_one(&mut connection).await?.get(0);
    assert_eq!(kept, 42);
    Ok(())
}

#[tokio::test]
async fn an_api_only_cluster_verifies_authorises_and_survives_a_kill() -> Result<()> {
    let cluster = Cluster::api_only().await?;
    let admin = cluster.admin().await?;
    assert_eq!(admin.apiserver_version().await?.git_version, "v1.36.3");

    // A client that does not trust the cluster's authority refuses to connect.
    let stranger = reqwest::Client::builder().no_proxy().build()?;
    let refused = stranger.get(format!("{}/readyz", cluster.url())).send().await;
    assert!(refused.is_err_and(|error| error.is_connect()));

    // A service account without permissions cannot read secrets.
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(admin.clone(), "default");
    let unprivileged = serde_json::from_value(serde_json::json!({"metadata": {"name": "nobody"}}))?;
    accounts.create(&PostParams::default(), &unprivileged).await?;
    let unprivileged = cluster.client_for("default", "nobody").await?;
    let secrets: Api<Secret> = Api::namespaced(unprivileged, "default");
    let refused = secrets.list(&ListParams::default()).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));

    // Stored objects survive the crash.
    let namespaces: Api<Namespace> = Api::all(admin);
    let kept = Namespace {
        metadata: ObjectMeta { name: Some("kept".into()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &kept).await?;
    cluster.kill_api_server()?;
    cluster.start_api_server().await?;
    assert!(namespaces.get_opt("kept").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_deployment_of_three_becomes_available() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let namespace = unique("web");
    cluster
        .apply(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {namespace}}}\n\
             spec:\n  replicas: 3\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    \
             metadata: {{labels: {{app: web}}}}\n    spec: {{containers: [{{name: web, image: web}}]}}\n"
        ))
        .await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin().await?, &namespace);
    eventually(Duration::from_secs(30), "3 available replicas", async || {
        let status = deployments.get("web").await.ok().and_then(|deployment| deployment.status);
        match status.as_ref().and_then(|status| status.available_replicas) {
            Some(3) => Attempt::Done(()),
            _ => Attempt::NotYet(format!("{status:?}")),
        }
    })
    .await?;
    cluster.kubectl(["delete", "namespace", &namespace, "--wait=true"]).await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn the_audit_log_sees_a_request() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let (mark, name) = (cluster.audit().mark()?, unique("seen"));
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin().await?, "default");
    let map = serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let request = eventually(Duration::from_secs(5), "the request in the audit log", async || {
        let requests = cluster.audit().requests_by("admin", mark)?;
        anyhow::Ok(
            requests.into_iter().find(|request| request.verb == "create" && request.resource == "configmaps"),
        )
        .and_then(|found| found.ok_or_else(|| anyhow::anyhow!("not there")))
    })
    .await?;
    assert_eq!((request.namespace.as_str(), request.code), ("default", 201));
    assert!(request.is_write() && request.received <= request.reached);
    assert!(cluster.audit().requests_by("another-client", mark)?.is_empty());
    Ok(())
}
