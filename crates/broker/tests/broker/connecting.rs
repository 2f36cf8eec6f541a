//! How the broker connects to PostgreSQL: a start through failures, standbys and poolers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_broker::args::ServeArgs;
use brokkr_broker::serve::{ServeError, Server};
use brokkr_testkit::pgproxy::{Fault, Link, Matcher, PgProxy, When};
use brokkr_testkit::postgres::{Durability, PoolMode, Pooler};
use brokkr_testkit::{Postgres, eventually};
use serde_json::json;

use crate::harness::{Caller, Harness, YAML, read, serve_changed};

const SOON: Duration = Duration::from_secs(60);

/// P16: a broker whose connection was cut while it started exited, and stayed down.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_repeated_wherever_the_database_fails() -> Result<()> {
    let harness = Harness::open().await?;
    let proxy = PgProxy::in_front_of(harness.postgres.facts().port).await?;
    let url = proxy.url(harness.database.name());
    let start = || Server::start(ServeArgs::on_loopback(&url));
    for statement in [
        "pg_backend_pid",
        "pg_is_in_recovery",
        "to_regclass",
        "FROM _sqlx_migrations",
        "SELECT id FROM installation",
        "FROM agents",
        "FROM stacks",
    ] {
        for when in [When::Before, When::After] {
            // The first one is cut, later ones pass.
            let rule = proxy.when(Matcher::statement(statement).first(1), when, Fault::Cut);
            let server = tokio::time::timeout(SOON, start())
                .await
                .with_context(|| format!("{statement} {when:?}"))??;
            assert!(rule.hits() > 0, "{statement} {when:?} never occurred");
            server.stop().await;
            proxy.heal();
        }
    }
    // Unreachable for a while, as when both start at the same time.
    proxy.set_link(Link::Refusing);
    let starting = tokio::spawn(Server::start(ServeArgs::on_loopback(&url)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!starting.is_finished(), "it waits");
    proxy.heal();
    tokio::time::timeout(SOON, starting).await???.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_not_used_until_it_is_promoted() -> Result<()> {
    let postgres = Arc::new(Postgres::start_with(Durability::Full).await?);
    let harness = Harness::open_on(Arc::clone(&postgres)).await?;
    let standby = postgres.server().context("a private server")?.standby().await?;
    let url = standby.url(harness.database.name());
    let starting = tokio::spawn(Server::start(ServeArgs::on_loopback(&url)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!starting.is_finished(), "it waits for the primary");
    sqlx::query("SELECT pg_promote()").execute(&mut standby.connect("postgres").await?).await?;
    tokio::time::timeout(SOON, starting).await???.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_session_mode_works_under_load_and_one_in_transaction_mode_is_refused() -> Result<()> {
    let harness = Harness::open().await?;
    for sessions in [1, 20] {
        let pooler = Pooler::start(&harness.postgres, PoolMode::Transaction, sessions).await?;
        let refused = Server::start(ServeArgs::on_loopback(&pooler.url(harness.database.name()))).await;
        let error = refused.map(|_| ()).expect_err("transaction mode").to_string();
        assert!(error.contains("pool_mode = session"), "{error}");
    }
    let pooler = Pooler::start(&harness.postgres, PoolMode::Session, 60).await?;
    let url = pooler.url(harness.database.name());
    let server =
        serve_changed(&harness.database, |args| args.database.database_url = url.as_str().into()).await?;
    let caller = Caller::new(
        server.address,
        Some(crate::harness::token(&harness.database, brokkr_api::tokens::Role::Admin).await?),
    );
    let stacks = (0..20).map(|number| {
        let caller = caller.clone();
        async move {
            let stack = format!("web-{number}");
            read::<serde_json::Value>(
                caller.send(reqwest::Method::PUT, &format!("stacks/{stack}"), &json!({})).await?,
            )
            .await?;
            for _ in 0..10 {
                let path = format!("stacks/{stack}/deployment-objects");
                let response = caller.request(reqwest::Method::POST, &path).body(YAML).send().await?;
                anyhow::ensure!(response.status() == 201, "{}", response.text().await?);
            }
            anyhow::Ok(())
        }
    });
    futures::future::try_join_all(stacks).await?;
    let settings = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                    AND application_name = 'brokkr-broker'";
    let sessions: i64 =
        sqlx::query_scalar(settings).fetch_one(&mut harness.database.connect().await?).await?;
    assert!(sessions > 3, "the load used the pooler");
    // The index follows through the pooler, too.
    let newest = harness.submit("web-0", YAML).await?;
    eventually(SOON, "the replica behind the pooler to know it", async || {
        let objects: serde_json::Value = caller.get_json("stacks/web-0/deployment-objects?limit=1").await?;
        anyhow::ensure!(objects["items"][0]["sequence_id"] == json!(newest.sequence_id), "{objects}");
        anyhow::Ok(())
    })
    .await?;
    server.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_database_without_tls_ends_the_start_with_a_reason() -> Result<()> {
    let harness = Harness::open().await?;
    // The server of the tests offers no TLS.
    let url = format!("{}?sslmode=require", harness.database.url());
    let refused = Server::start(ServeArgs::on_loopback(&url)).await.map(|_| ());
    assert!(matches!(&refused, Err(ServeError::Store(error)) if error.is_misconfigured()), "{refused:?}");
    Ok(())
}
