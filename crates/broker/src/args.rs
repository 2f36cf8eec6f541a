//! Flags and environment, with their docs. Only types; what they do is in `commands` and `serve`.

pub mod webhooks;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use brokkr_api::audit::AuditHead;
use clap::{Parser, Subcommand};
use secrecy::SecretString;
use url::Url;

use crate::access::origin::Network;
use crate::domain::retention::Retention;
use crate::telemetry::LogFormat;

/// The server that holds what should run, and tells each agent.
#[derive(Debug, Parser)]
#[command(name = "brokkr-broker", version)]
pub struct Args {
    /// File (TOML) with settings: the names of flags, with `_` for `-`. Environment and flags win over it.
    #[arg(long, global = true, env = "BROKKR_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create or upgrade the database schema. Safe to run again, and at the same time.
    Migrate(DatabaseArgs),
    /// Print the first admin token, once. Refuses if there is a valid admin token already.
    Bootstrap(BootstrapArgs),
    /// Serve the API.
    Serve(Box<ServeArgs>),
    /// Everything at once, to try it out: create the schema, make certificates and the first admin token, serve. What it
    /// makes is kept in a folder and used again the next time.
    Up(UpArgs),
    /// After a restore of the database: hold everything, or say that the restored state is the one to go on with.
    #[command(subcommand)]
    Epoch(EpochCommand),
    /// Look after the audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Print the settings that `serve` would run with, and where each comes from. Secrets are not shown.
    Config(Box<ServeArgs>),
    /// Print the OpenAPI document.
    Openapi,
}

#[derive(Debug, Subcommand)]
pub enum EpochCommand {
    /// Put every replica on hold: agents keep what they have, and nothing can be changed. Run it on a restored database
    /// before the first replica starts; replicas do it themselves when an agent has seen more than the database.
    Hold(HoldArgs),
    /// Go on with the restored database: ends the hold, raises the epoch, and lets sequence ids go on above every one
    /// that was ever handed out.
    Raise(RaiseArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct HoldArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Shown to whoever is refused.
    #[arg(long, default_value = "an operator put it on hold", value_name = "TEXT")]
    pub because: String,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RaiseArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Show what would happen, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Who raises it, for the record.
    #[arg(long, env = "USER", default_value = "unknown", value_name = "NAME")]
    pub by: String,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Walk the chain of every project and name the first link that does not hold. Fails if there is one.
    Verify(AuditVerifyArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct AuditVerifyArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Only this project.
    #[arg(long, value_name = "NAME")]
    pub project: Option<String>,
    /// A head that was kept elsewhere, which the chain has to contain: PROJECT:NUMBER:HASH.
    #[arg(long, value_name = "HEAD")]
    pub anchor: Vec<Anchor>,
}

/// A head of a chain as somebody kept it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor(pub AuditHead);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not of the form PROJECT:NUMBER:HASH")]
pub struct BadAnchor(String);

impl FromStr for Anchor {
    type Err = BadAnchor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':');
        let head = (|| {
            let (project, number, hash) = (parts.next()?, parts.next()?, parts.next()?);
            let head = AuditHead {
                project: project.to_owned(),
                number: number.parse().ok()?,
                hash: hash.parse().ok()?,
            };
            parts.next().is_none().then_some(head)
        })();
        head.map(Self).ok_or_else(|| BadAnchor(text.to_owned()))
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct DatabaseArgs {
    /// Address of the PostgreSQL database: postgres://user:password@host:port/name.
    #[arg(long, env = "BROKKR_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: SecretString,
}

#[derive(Clone, Debug, clap::Args)]
pub struct BootstrapArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// How long the token is valid.
    #[arg(long, env = "BROKKR_BOOTSTRAP_VALID_FOR", default_value = "365d", value_parser = humantime::parse_duration)]
    pub valid_for: Duration,
}

#[derive(Clone, Debug, clap::Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8780", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Where certificates and tokens are kept.
    #[arg(long, default_value = "brokkr-evaluation", value_name = "FOLDER")]
    pub folder: PathBuf,
    /// A further name or address that agents and people will use for this machine; can be repeated.
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Where to listen.
    #[arg(long, env = "BROKKR_LISTEN", default_value = "127.0.0.1:8780", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Certificate chain (PEM), together with its key. Without it, TLS has to end at a proxy in front.
    #[arg(long, env = "BROKKR_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "BROKKR_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Connections to the database, at most.
    #[arg(long, env = "BROKKR_DATABASE_CONNECTIONS", default_value_t = 20, value_name = "COUNT")]
    pub database_connections: u32,
    /// Connections from agents and people, at most.
    #[arg(long, env = "BROKKR_MAX_CONNECTIONS", default_value_t = 65_536, value_name = "COUNT")]
    pub max_connections: usize,
    /// Connections from one address, at most (of an IPv6 address: from its network of 64 bits). Agents behind
    /// one gateway share an address.
    #[arg(long, env = "BROKKR_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 32_768, value_name = "COUNT")]
    pub max_connections_per_address: usize,
    /// Where to listen for health checks and metrics, without TLS. Not for the open network.
    #[arg(long, env = "BROKKR_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub admin_listen: Option<SocketAddr>,
    /// How long a broker that was told to stop still takes requests, while its readiness already says no, so
    /// that whoever sends requests here can look elsewhere.
    #[arg(long, env = "BROKKR_DRAIN_GRACE", default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub drain_grace: Duration,
    /// How long requests may then take to finish. Those who wait are answered in the first half of it.
    #[arg(long, env = "BROKKR_DRAIN", default_value = "20s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub drain: Duration,
    /// Proxies whose `X-Forwarded-For` is believed: addresses or networks such as 10.0.0.0/8, separated by commas.
    #[arg(long, env = "BROKKR_TRUSTED_PROXIES", value_delimiter = ',', value_name = "NETWORKS")]
    pub trusted_proxies: Vec<Network>,
    #[command(flatten)]
    pub retention: RetentionArgs,
    /// Whether requests are counted per token, agent and address, and refused if there are too many.
    #[arg(long, env = "BROKKR_RATE_LIMITS", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub rate_limits: bool,
    /// How log lines look.
    #[arg(long, env = "BROKKR_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Collector that traces are sent to by OTLP over HTTP, such as `http://collector:4318`.
    #[arg(long, env = "BROKKR_TRACES", value_name = "URL")]
    pub traces: Option<Url>,
    #[command(flatten)]
    pub webhooks: webhooks::WebhookArgs,
}

impl ServeArgs {
    /// On a port of the system's choice of this machine alone, and otherwise as without any flag; stops at once.
    #[must_use]
    pub fn on_loopback(database_url: &str) -> Self {
        Self {
            database: DatabaseArgs { database_url: database_url.into() },
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls_cert: None,
            tls_key: None,
            database_connections: 10,
            max_connections: 1000,
            max_connections_per_address: 1000,
            admin_listen: None,
            drain_grace: Duration::ZERO,
            drain: Duration::from_secs(2),
            trusted_proxies: Vec::new(),
            rate_limits: true,
            retention: RetentionArgs::default(),
            log_format: LogFormat::Text,
            traces: None,
            webhooks: webhooks::WebhookArgs::default(),
        }
    }
}

/// How long what happened, and what is no longer wanted, is kept.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RetentionArgs {
    /// Days that events are kept.
    #[arg(long, env = "BROKKR_EVENT_DAYS", default_value_t = 30, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub event_days: u32,
    /// Days after which contents of earlier versions may go. What an agent may still have never goes.
    #[arg(long, env = "BROKKR_CONTENT_DAYS", default_value_t = 180, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub content_days: u32,
    /// Versions of each stack whose contents are kept however old they are.
    #[arg(long, env = "BROKKR_CONTENT_VERSIONS", default_value_t = 20, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub content_versions: u32,
}

impl RetentionArgs {
    #[must_use]
    pub fn retention(self) -> Retention {
        let Self { event_days, content_days, content_versions } = self;
        Retention { event_days, content_days, content_versions }
    }
}

impl Default for RetentionArgs {
    fn default() -> Self {
        let Retention { event_days, content_days, content_versions } = Retention::default();
        Self { event_days, content_days, content_versions }
    }
}
