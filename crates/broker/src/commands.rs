//! Runs the subcommands and returns the exit code.

mod epoch;
mod up;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use brokkr_api::TokenId;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::tokens::Role;
use secrecy::ExposeSecret as _;
use sqlx::{Connection as _, PgConnection};

use crate::access::secret::{Secret, SecretKind};
use crate::args::{Anchor, AuditCommand, AuditVerifyArgs, BootstrapArgs, Command, ServeArgs};
use crate::config::{self, Parsed, Setting};
use crate::open_files;
use crate::router;
use crate::serve;
use crate::store::api_tokens::{NewApiToken, api_token_admin_exists_on_conn, api_token_insert_on_conn};
use crate::store::audit::{audit_heads, audit_walk};
use crate::store::{connect, connect_options, schema};
use crate::tasks::audit_chain;
use crate::telemetry;

pub fn run(parsed: Parsed) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("brokkr-broker: failed to start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(command(parsed.args.command, &parsed.settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("brokkr-broker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn command(command: Command, settings: &[Setting]) -> Result<()> {
    match command {
        Command::Migrate(args) => {
            let url = args.database.database_url.expose_secret();
            Ok(schema::schema_migrate_with(url, &args.serving()).await?)
        }
        Command::Bootstrap(args) => bootstrap(args).await,
        Command::Serve(args) => serve(*args).await,
        Command::Up(args) => up::run(args).await,
        Command::Epoch(command) => epoch::run(command).await,
        Command::Audit(AuditCommand::Verify(args)) => audit_verify(args).await,
        Command::Config(_) => {
            let _ = write!(std::io::stdout(), "{}", config::shown(settings));
            Ok(())
        }
        Command::Openapi => {
            // A closed pipe is not an error.
            let _ = writeln!(std::io::stdout(), "{}", router::openapi_json());
            Ok(())
        }
    }
}

async fn serve(args: ServeArgs) -> Result<()> {
    let traces = telemetry::start(args.log_format, args.traces.as_ref())?;
    let served = serve_until_stopped(args).await;
    if let Some(traces) = traces {
        traces.end().await;
    }
    served
}

async fn serve_until_stopped(mut args: ServeArgs) -> Result<()> {
    args.max_connections = open_files::raise_limit(args.max_connections, args.database_connections);
    let mut server = serve::Server::start(args).await?;
    let ended = server.until(serve::stop_requested()).await;
    server.stop().await;
    Ok(ended?)
}

/// Creates the first admin token. Its secret is printed and not stored.
async fn bootstrap(args: BootstrapArgs) -> Result<()> {
    let secret = first_admin_token(args.database.database_url.expose_secret(), args.valid_for).await?;
    println!("{}", secret.expose());
    Ok(())
}

async fn first_admin_token(database_url: &str, valid_for: Duration) -> Result<Secret> {
    let options = connect_options(database_url)?;
    let mut connection =
        PgConnection::connect_with(&options).await.context("failed to connect to the database")?;
    let mut transaction = connection.begin().await.context("failed to begin a transaction")?;
    let exists = api_token_admin_exists_on_conn(&mut transaction)
        .await
        .context("failed to read the schema; run `brokkr-broker migrate` first")?;
    if exists {
        bail!("an admin token exists; the first one is printed only once");
    }
    let secret = Secret::generate(SecretKind::ApiToken);
    let token = NewApiToken {
        project: DEFAULT_PROJECT,
        id: TokenId::generate(),
        name: "bootstrap",
        role: Role::Admin,
        hash: &secret.hash(),
        created_by: None,
        expires_at: Some(jiff::Timestamp::now().checked_add(valid_for).context("the validity is too long")?),
    };
    api_token_insert_on_conn(&mut transaction, token).await?;
    transaction.commit().await.context("failed to store the token")?;
    Ok(secret)
}

/// Verifies every chain to its end and prints the result of each. Fails if a link is broken.
async fn audit_verify(args: AuditVerifyArgs) -> Result<()> {
    let pool = connect(args.database.database_url.expose_secret(), 2).await?;
    let only = args.project.map(|project| vec![project]);
    let mut broken = 0;
    for head in audit_heads(&pool, only.as_deref()).await? {
        let project = &head.project;
        let verdict = audit_chain::verify(&pool, project, 0, i64::MAX).await?;
        match &verdict.broken {
            None => println!("{project}: {} links valid, head {}:{}", verdict.links, head.number, head.hash),
            Some(link) => {
                broken += 1;
                let entry = link.audit_id.map(|id| format!(" (entry {id})")).unwrap_or_default();
                println!("{project}: BROKEN at link {}{entry}: {}", link.number, link.why);
            }
        }
    }
    for Anchor(kept) in &args.anchor {
        let link = audit_walk(&pool, &kept.project, kept.number - 1, 1).await?.into_iter().next();
        if link.is_none_or(|link| link.number != kept.number || link.hash != kept.hash) {
            broken += 1;
            println!("{}: BROKEN at link {}: it differs from the given anchor", kept.project, kept.number);
        }
    }
    if broken > 0 {
        bail!("the audit log is broken in {broken} places: it was changed outside the broker");
    }
    Ok(())
}
