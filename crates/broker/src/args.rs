//! Flags and environment variables, with their documentation. Only types; behaviour is in `commands` and `serve`.

pub mod webhooks;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use brokkr_api::audit::AuditHead;
use clap::{Parser, Subcommand};
use ipnet::IpNet;
use secrecy::SecretString;
use url::Url;

use crate::domain::network::parse_network;
use crate::domain::retention::Retention;
use crate::metrics::ListedStack;
use crate::store::privileges::ServingRole;
use crate::telemetry::LogFormat;

/// Run and maintain the Brokkr broker.
#[derive(Debug, Parser)]
#[command(name = "brokkr-broker", version)]
pub struct Args {
    /// Read settings from this TOML file. Keys are the names of flags, with `_` for `-`; environment variables and flags override it.
    #[arg(long, global = true, env = "BROKKR_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create or upgrade the database schema. Safe to run repeatedly and concurrently.
    Migrate(MigrateArgs),
    /// Create and print the first admin token. Fails if a valid admin token exists.
    Bootstrap(BootstrapArgs),
    /// Serve the API.
    Serve(Box<ServeArgs>),
    /// Start a broker for evaluation: create the schema, certificates and the first admin token, then serve. The files
    /// are kept in a directory and reused at the next start.
    Up(UpArgs),
    /// Hold or resume the installation after a restore of the database.
    #[command(subcommand)]
    Epoch(EpochCommand),
    /// Verify the audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Print the effective settings of `serve` and the origin of each. Secrets are not shown.
    Config(Box<ServeArgs>),
    /// Print the OpenAPI document.
    Openapi,
}

#[derive(Debug, Subcommand)]
pub enum EpochCommand {
    /// Put every replica on hold: agents keep their stacks, and changes are refused. Run it on a restored database before
    /// the first replica starts. Replicas go on hold automatically when an agent has seen a newer state than the database has.
    Hold(HoldArgs),
    /// Continue with the restored database: end the hold, raise the epoch, and issue only sequence ids above all earlier
    /// ones.
    Raise(RaiseArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct HoldArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Reason to show when a request is refused.
    #[arg(long, default_value = "an operator put the installation on hold", value_name = "TEXT")]
    pub because: String,
}

#[derive(Clone, Debug, clap::Args)]
pub struct RaiseArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Show what would happen without changing anything.
    #[arg(long)]
    pub dry_run: bool,
    /// Name to record as the operator who raised the epoch.
    #[arg(long, env = "USER", default_value = "unknown", value_name = "NAME")]
    pub by: String,
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Verify the hash chain of every project and print the first invalid entry of each. Fails if there is one.
    Verify(AuditVerifyArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct AuditVerifyArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Verify only this project.
    #[arg(long, value_name = "NAME")]
    pub project: Option<String>,
    /// Check that the chain contains this head, which was stored outside the broker: PROJECT:NUMBER:HASH. Can be repeated.
    #[arg(long, value_name = "HEAD")]
    pub anchor: Vec<Anchor>,
}

/// A head of a chain that was stored elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor(pub AuditHead);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} does not have the form PROJECT:NUMBER:HASH")]
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
    /// URL of the PostgreSQL database: postgres://user:password@host:port/name. The connection to another host is encrypted,
    /// unless the URL has an sslmode.
    #[arg(long, env = "BROKKR_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: SecretString,
}

#[derive(Clone, Debug, clap::Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Role that `serve` connects with, if it is not the owner of the tables. It is granted the privileges that it needs,
    /// also on tables that later migrations create.
    #[arg(long, env = "BROKKR_SERVING_ROLE", value_name = "NAME")]
    pub serving_role: Option<String>,
    /// Days for which the serving role cannot drop audit entries, whatever its `--audit-days`. Default: 31, or the
    /// last value that was given.
    #[arg(long, env = "BROKKR_MIN_AUDIT_DAYS", value_name = "DAYS", value_parser = clap::value_parser!(u32).range(31..=36500))]
    pub min_audit_days: Option<u32>,
}

impl MigrateArgs {
    #[must_use]
    pub fn serving(&self) -> ServingRole {
        ServingRole { name: self.serving_role.clone(), min_audit_days: self.min_audit_days }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct BootstrapArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Validity of the token.
    #[arg(long, env = "BROKKR_BOOTSTRAP_VALID_FOR", default_value = "365d", value_parser = humantime::parse_duration)]
    pub valid_for: Duration,
}

#[derive(Clone, Debug, clap::Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:8780", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Directory for certificates and tokens.
    #[arg(long, default_value = "brokkr-evaluation", value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Additional host name or address of this machine, for the certificate. Can be repeated.
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Address to listen on.
    #[arg(long, env = "BROKKR_LISTEN", default_value = "127.0.0.1:8780", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Certificate chain (PEM). Requires `--tls-key`. Without a certificate, a proxy in front of the broker must terminate TLS.
    #[arg(long, env = "BROKKR_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "BROKKR_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Maximum number of database connections.
    #[arg(long, env = "BROKKR_DATABASE_CONNECTIONS", default_value_t = 20, value_name = "COUNT")]
    pub database_connections: u32,
    /// Maximum number of client connections.
    #[arg(long, env = "BROKKR_MAX_CONNECTIONS", default_value_t = 65_536, value_name = "COUNT")]
    pub max_connections: usize,
    /// Maximum number of client connections per address (IPv6: per /64 network). Agents behind one gateway share an
    /// address.
    #[arg(long, env = "BROKKR_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 32_768, value_name = "COUNT")]
    pub max_connections_per_address: usize,
    /// Maximum memory for request bodies that are being received or processed, in bytes. A sixteenth of it is for
    /// callers without a credential.
    #[arg(long, env = "BROKKR_MAX_BODY_BYTES", default_value_t = 64 << 20, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(16 << 20..))]
    pub max_body_bytes: u32,
    /// Address to serve health checks and metrics on, without TLS. Do not expose it.
    #[arg(long, env = "BROKKR_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub admin_listen: Option<SocketAddr>,
    /// Time after a stop signal during which the broker still accepts requests but reports that it is not ready, so that
    /// load balancers can react.
    #[arg(long, env = "BROKKR_DRAIN_GRACE", default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub drain_grace: Duration,
    /// Time for open requests to finish after the drain grace. Long polls are answered in its first half.
    #[arg(long, env = "BROKKR_DRAIN", default_value = "20s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub drain: Duration,
    /// Proxies to accept `X-Forwarded-For` from: addresses or networks such as 10.0.0.0/8, separated by commas.
    #[arg(long, env = "BROKKR_TRUSTED_PROXIES", value_delimiter = ',', value_parser = parse_network, value_name = "NETWORKS")]
    pub trusted_proxies: Vec<IpNet>,
    #[command(flatten)]
    pub retention: RetentionArgs,
    /// Limit the rate of requests per token, agent and address.
    #[arg(long, env = "BROKKR_RATE_LIMITS", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub rate_limits: bool,
    /// Serve long polls with the HTTP library that serves all other requests, not with the broker's own code. A waiting
    /// agent then uses about four times as much memory.
    #[arg(long, env = "BROKKR_LONG_POLLS_IN_HYPER")]
    pub long_polls_in_hyper: bool,
    /// Stacks with metrics of their own, such as `shop/web`, separated by commas; at most 100.
    #[arg(long, env = "BROKKR_STACK_METRICS", value_delimiter = ',', value_name = "PROJECT/STACK")]
    pub stack_metrics: Vec<ListedStack>,
    /// Format of log lines.
    #[arg(long, env = "BROKKR_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// OTLP/HTTP collector to send traces to, such as `http://collector:4318`.
    #[arg(long, env = "BROKKR_TRACES", value_name = "URL")]
    pub traces: Option<Url>,
    #[command(flatten)]
    pub webhooks: webhooks::WebhookArgs,
}

impl ServeArgs {
    /// Returns settings for tests: a free port on loopback, defaults otherwise, and no drain.
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
            max_body_bytes: 64 << 20,
            admin_listen: None,
            drain_grace: Duration::ZERO,
            drain: Duration::from_secs(2),
            trusted_proxies: Vec::new(),
            rate_limits: true,
            long_polls_in_hyper: false,
            retention: RetentionArgs::default(),
            stack_metrics: Vec::new(),
            log_format: LogFormat::Text,
            traces: None,
            webhooks: webhooks::WebhookArgs::default(),
        }
    }
}

/// How long events, audit entries and the content of versions are kept.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RetentionArgs {
    /// Days to keep events.
    #[arg(long, env = "BROKKR_EVENT_DAYS", default_value_t = 30, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub event_days: u32,
    /// Days to keep audit entries. Entries are dropped by whole months, so they are kept for up to a month longer.
    #[arg(long, env = "BROKKR_AUDIT_DAYS", default_value_t = 400, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(31..=36500))]
    pub audit_days: u32,
    /// Days to keep the content of earlier versions. Content that an agent may still have is always kept.
    #[arg(long, env = "BROKKR_CONTENT_DAYS", default_value_t = 180, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub content_days: u32,
    /// Number of versions per stack that keep their content regardless of age.
    #[arg(long, env = "BROKKR_CONTENT_VERSIONS", default_value_t = 20, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub content_versions: u32,
}

impl RetentionArgs {
    #[must_use]
    pub fn retention(self) -> Retention {
        let Self { event_days, audit_days, content_days, content_versions } = self;
        Retention { event_days, audit_days, content_days, content_versions }
    }
}

impl Default for RetentionArgs {
    fn default() -> Self {
        let Retention { event_days, audit_days, content_days, content_versions } = Retention::default();
        Self { event_days, audit_days, content_days, content_versions }
    }
}
