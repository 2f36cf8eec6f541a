//! `brokkr-swarm`: simulates a fleet without clusters against an existing broker.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use brokkr_api::{InstallationId, Labels};
use brokkr_client::{Client, Credential, RetryPolicy, SecretString};
use brokkr_swarm::{Broker, Config, Failures, Identity, Swarm, Transport, enrol, files, join};
use clap::Parser;
use sqlx::PgPool;
use url::Url;
use uuid::Uuid;

/// Run many simulated agents against a broker. For test installations only: their reports are invented.
#[derive(Debug, Parser)]
#[command(name = "brokkr-swarm", version)]
struct Args {
    /// Connect to the broker at this URL; repeat it for several replicas.
    #[arg(long, required = true, value_name = "URL")]
    broker: Vec<Url>,
    /// Trust the certificates of this file (PEM).
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// Run this many agents.
    #[arg(long, default_value_t = 100)]
    agents: usize,
    /// Derive the agents from this seed; the same seed gives the same agents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Add the agents directly to the broker's database, which is fast for many.
    #[arg(
        long,
        env = "BROKKR_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        conflicts_with = "token"
    )]
    database_url: Option<SecretString>,
    /// Let the agents join one by one with this admin token.
    #[arg(long, env = "BROKKR_TOKEN", hide_env_values = true)]
    token: Option<SecretString>,
    /// Add this label, `key=value`, to every agent; each also has `swarm=SEED`.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Let each poll wait for this long.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Take at most this long to apply.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    applying: Duration,
    /// Spread the first connections over this time.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    start_within: Duration,
    /// Share each HTTP/2 connection among this many agents, instead of one connection each.
    #[arg(long, value_name = "AGENTS")]
    share: Option<usize>,
    /// Fail to apply with this probability, from 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    fail: f64,
    /// Lose the response to a write with this probability.
    #[arg(long, default_value_t = 0.0)]
    lose_answer: f64,
    /// Send reports twice with this probability.
    #[arg(long, default_value_t = 0.0)]
    report_twice: f64,
    /// Drop the connection before a poll with this probability.
    #[arg(long, default_value_t = 0.0)]
    reconnect: f64,
    /// Make an agent silent for some seconds with this probability.
    #[arg(long, default_value_t = 0.0)]
    silence: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        bail!("another crypto provider is already installed");
    }
    let files = files::raise()?;
    if args.share.is_none() && args.agents as u64 + 100 > files {
        bail!("{} agents need as many open files, but only {files} are allowed: use --share", args.agents);
    }
    let authorities =
        std::fs::read(&args.ca).with_context(|| format!("cannot read {}", args.ca.display()))?;
    let (installation, agents) = identities(&args, &authorities).await?;
    let brokers = args.broker.iter().map(Broker::at).collect::<Result<_>>()?;
    let mut config = Config::new(brokers, authorities, installation, agents);
    config.seed = args.seed;
    config.transport = args.share.map_or(Transport::Own, |agents| Transport::Shared { agents });
    config.wait = args.wait;
    config.applying = Duration::ZERO..args.applying;
    config.start_within = args.start_within;
    config.failures = Failures {
        apply: args.fail,
        lost_answer: args.lose_answer,
        report_twice: args.report_twice,
        reconnect: args.reconnect,
        silence: args.silence,
    };
    let swarm = Swarm::start(config)?;
    let mut tick = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            _ = tick.tick() => {}
        }
        let counts = swarm.counts();
        println!(
            "connected {} waiting {} polls {} changed {} delivered {} failed {} reports {} (+{} duplicates) errors {}{}",
            counts.connected,
            counts.waiting,
            counts.polls,
            counts.changed,
            counts.delivered,
            counts.failed,
            counts.reports_accepted,
            counts.reports_duplicate,
            counts.troubles,
            swarm.last_trouble().map(|error| format!(" (last: {error})")).unwrap_or_default(),
        );
    }
    swarm.stop().await;
    Ok(())
}

async fn identities(args: &Args, authorities: &[u8]) -> Result<(InstallationId, Vec<Identity>)> {
    let mut labels: Labels = args.labels.iter().cloned().collect();
    labels.insert("swarm".into(), args.seed.to_string());
    let expose = |secret: &SecretString| secrecy::ExposeSecret::expose_secret(secret).to_owned();
    match (&args.database_url, &args.token) {
        (Some(url), _) => {
            let pool = PgPool::connect(&expose(url)).await.context("cannot connect to the database")?;
            let installation: Uuid =
                sqlx::query_scalar("SELECT id FROM installation").fetch_one(&pool).await?;
            let agents = enrol::enrol(&pool, args.seed, args.agents, |_| labels.clone()).await?;
            Ok((InstallationId(installation), agents))
        }
        (None, Some(token)) => {
            let admin = Client::builder(args.broker[0].clone())
                .ca_pem(authorities)
                .credential(Credential::Token(token.clone()))
                .retry(RetryPolicy::up_to(Duration::from_secs(60)))
                .build()?;
            join::join(&admin, args.seed, args.agents, |_| labels.clone()).await
        }
        (None, None) => bail!("pass --database-url for many agents, or --token for a few that join"),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}
