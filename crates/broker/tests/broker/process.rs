//! The program itself: what it prints, when it refuses, and that nothing acknowledged is lost by `kill -9`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_api::objects::DeploymentObject;
use brokkr_api::page::Page;
use brokkr_testkit::process::run;
use brokkr_testkit::{Database, Launch, Output, Port, Postgres, Process, Scratch, eventually};
use reqwest::Method;
use serde_json::json;

use crate::harness::{Caller, YAML, read};

const PROGRAM: &str = env!("CARGO_BIN_EXE_brokkr-broker");
const SOON: Duration = Duration::from_secs(30);

async fn broker(database: &Database, arguments: &[&str]) -> Result<Output> {
    let launch =
        Launch::new("brokkr-broker", PROGRAM).args(arguments).args(["--database-url", &database.url()]);
    run(launch, SOON).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_admin_token_is_printed_once_and_only_a_migrated_database_is_served() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let database = postgres.database().await?;
    let served = broker(&database, &["serve", "--listen", "127.0.0.1:0"]).await?;
    assert!(served.stderr.contains("brokkr-broker migrate"), "{}", served.stderr);
    // Two migrations at the same time.
    let (one, two) = tokio::join!(broker(&database, &["migrate"]), broker(&database, &["migrate"]));
    one?.ok()?;
    two?.ok()?;
    let first = broker(&database, &["bootstrap"]).await?.ok()?;
    assert!(first.stdout.starts_with("brk_") && first.stdout.trim().lines().count() == 1);
    let second = broker(&database, &["bootstrap"]).await?;
    assert!(second.stdout.is_empty() && second.stderr.contains("an admin token exists"), "{}", second.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_submissions_survive_kill_9() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let database = postgres.database().await?;
    broker(&database, &["migrate"]).await?.ok()?;
    let token = broker(&database, &["bootstrap"]).await?.ok()?.stdout.trim().to_owned();
    let (port, scratch) = (Port::free()?, Scratch::new("broker")?);
    let url = database.url();
    let launch = Launch::new("brokkr-broker", PROGRAM).args([
        "serve",
        "--listen",
        &port.address(),
        "--database-url",
        &url,
    ]);
    let process = Process::start(launch, scratch.path())?;
    let caller = Caller::new(port.address().parse()?, Some(token));
    let ready = async || caller.get("/readyz").await.is_ok_and(|response| response.status().is_success());
    process.ready_when(SOON, ready).await?;
    read::<serde_json::Value>(caller.send(Method::PUT, "stacks/web", &json!({})).await?).await?;

    let mut acknowledged = Vec::new();
    let acknowledged_count = AtomicUsize::new(0);
    for round in 0..3 {
        let submitting = async {
            for count in 0.. {
                let request = caller.request(Method::POST, "stacks/web/deployment-objects");
                let request = request.header("idempotency-key", format!("{round}-{count}"));
                let Ok(response) = request.body(YAML).send().await else { return };
                match read::<DeploymentObject>(response).await {
                    Ok(object) => {
                        acknowledged.push(object.sequence_id);
                        acknowledged_count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => return,
                }
            }
        };
        let killing = async {
            // Kills the broker while submissions are running, however fast this machine is.
            eventually(SOON, "submissions to flow", async || {
                acknowledged_count.load(Ordering::Relaxed) >= (round + 1) * 5
            })
            .await?;
            process.kill9();
            anyhow::Ok(())
        };
        let ((), killed) = tokio::join!(submitting, killing);
        killed?;
        process.start_again()?;
        process.ready_when(SOON, ready).await?;
    }
    let mut stored = Vec::new();
    let mut after = String::new();
    loop {
        let page: Page<DeploymentObject> =
            caller.get_json(&format!("stacks/web/deployment-objects?limit=500{after}")).await?;
        stored.extend(page.items.iter().map(|object| object.sequence_id));
        let Some(next) = page.next else { break };
        after = format!("&after={next}");
    }
    assert!(acknowledged.len() >= 3, "{}", acknowledged.len());
    let lost: Vec<_> = acknowledged.iter().filter(|sequence| !stored.contains(sequence)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let unknown = stored.len() - acknowledged.len();
    assert!(unknown <= 3, "at most one submission per kill is stored and not acknowledged: {unknown}");
    let status = process.stop().await.context("failed to stop the broker")?;
    assert!(status.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_verifies_the_audit_log_and_fails_if_it_was_changed() -> Result<()> {
    let harness = crate::harness::Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let head = async || harness.admin.get_json::<brokkr_api::audit::AuditHead>("audit/head").await;
    brokkr_testkit::eventually(SOON, "the log to be chained", async || {
        head().await.is_ok_and(|head| head.number == 2)
    })
    .await?;
    let kept = format!("default:2:{}", head().await?.hash);
    let verified = broker(&harness.database, &["audit", "verify", "--anchor", &kept]).await?.ok()?;
    assert!(verified.stdout.starts_with("default: 2 links valid"), "{}", verified.stdout);
    // A head that was stored elsewhere and is not in the chain reveals that the whole log was rewritten. Here
    // the log is untouched, and the given head is wrong instead.
    let other = format!("default:2:{}", "0".repeat(64));
    let wrong_anchor = broker(&harness.database, &["audit", "verify", "--anchor", &other]).await?;
    assert!(wrong_anchor.ok().is_err());
    let mut connection = harness.database.connect().await?;
    sqlx::query("SET session_replication_role = replica").execute(&mut connection).await?;
    sqlx::query("UPDATE audit SET name = 'somebody'").execute(&mut connection).await?;
    let broken = broker(&harness.database, &["audit", "verify"]).await?;
    assert!(broken.stdout.contains("BROKEN at link 1"), "{}", broken.stdout);
    assert!(broken.ok().is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn up_starts_a_broker_for_evaluation_and_reuses_its_files() -> Result<()> {
    let postgres = Postgres::shared().await?;
    let database = postgres.database().await?;
    let (port, scratch) = (Port::free()?, Scratch::new("up")?);
    let folder = scratch.join("kept");
    let start = || {
        let launch = Launch::new("brokkr-broker", PROGRAM)
            .args(["up", "--listen", &port.address(), "--database-url", &database.url(), "--folder"])
            .arg(&folder);
        Process::start(launch, scratch.path())
    };
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let process = start()?;
        let url = format!("https://localhost:{}/", port.number());
        let whoami = async || -> Result<String> {
            let authority = reqwest::Certificate::from_pem(&std::fs::read(folder.join("ca.pem"))?)?;
            let client = reqwest::Client::builder().tls_certs_only([authority]).build()?;
            let token = std::fs::read_to_string(folder.join("admin-token"))?;
            let asked = client.get(format!("{url}api/v1/whoami")).bearer_auth(token.trim());
            asked.send().await?.error_for_status()?;
            Ok(token)
        };
        process.ready_when(SOON, async || whoami().await.is_ok()).await?;
        let log = process.log();
        assert!(log.contains(&format!("brokkr login https://localhost:{}", port.number())), "{log}");
        tokens.push(whoami().await?);
        assert!(!log.contains(tokens[0].trim()), "the token is only in its file");
        process.stop().await?;
    }
    assert_eq!(tokens[0], tokens[1], "the files are reused");
    for secret in ["admin-token", "broker.key", "secret-key"] {
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(folder.join(secret))?.permissions());
        assert_eq!(mode & 0o077, 0, "{secret} is accessible to its owner only");
    }
    std::fs::remove_dir_all(&folder)?;
    let elsewhere = broker(&database, &["up", "--folder", &folder.display().to_string()]).await?;
    assert!(
        !elsewhere.success() && elsewhere.stderr.contains("use the directory of the first start"),
        "{elsewhere:?}"
    );
    Ok(())
}
