//! `with-broker COMMAND…` starts PostgreSQL and a broker with TLS, a token and one stack, runs the command
//! with the broker's address, the token and the certificate authority in its environment (`BROKKR_URL`,
//! `BROKKR_TOKEN`, `BROKKR_CA`), and ends PostgreSQL and the broker when the command ends.
//! `cargo xtask api` calls every route through it.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use brokkr_testkit::tls::Authority;
use brokkr_testkit::{Broker, Postgres, ShowLog, broker};

/// One object, so that there is a version to request.
const YAML: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: greeting\n  namespace: default\n";

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let (program, arguments) = command.split_first().context("a command is missing")?;
    let postgres = Postgres::start().await?;
    let database = postgres.database().await?;
    broker::migrate(&database.url()).await?;
    let token = broker::bootstrap(&database.url()).await?;
    let authority = Authority::new("brokkr-test")?;
    // One caller makes thousands of requests.
    let broker =
        Broker::start(&database.url(), &authority, ShowLog::OnPanic, &["--rate-limits", "false"]).await?;
    let stack = format!("{}/api/v1/stacks/web", broker.url());
    let http = broker.http();
    let made = http.put(&stack).bearer_auth(&token).body("{}").send().await?;
    ensure!(made.status().is_success(), "cannot create the stack: {}", made.status());
    let objects = format!("{stack}/deployment-objects");
    let submitted = http.post(&objects).bearer_auth(&token).body(YAML).send().await?;
    ensure!(submitted.status().is_success(), "cannot submit: {}", submitted.status());

    let status = tokio::process::Command::new(program)
        .args(arguments)
        .env("BROKKR_URL", broker.url())
        .env("BROKKR_TOKEN", &token)
        .env("BROKKR_CA", broker.authority_file())
        .kill_on_drop(true)
        .status()
        .await
        .with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        eprintln!("the end of the broker's log:\n{}", broker.process().log_tail(20));
    }
    Ok(ExitCode::from(if status.success() { 0 } else { 1 }))
}
