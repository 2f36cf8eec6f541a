//! Flags and environment, with their docs. Only types; what they do is in `commands` and `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use brokkr_api::audit::AuditHead;
use clap::{Parser, Subcommand, ValueEnum};
use secrecy::SecretString;

use crate::access::origin::Network;

/// The server that holds what should run, and tells each agent.
#[derive(Debug, Parser)]
#[command(name = "brokkr-broker", version)]
pub struct Args {
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
    Serve(ServeArgs),
    /// Look after the audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Print the OpenAPI document.
    Openapi,
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
pub struct ServeArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Where to listen.
    #[arg(long, env = "BROKKR_LISTEN", default_value = "127.0.0.1:8780", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Certificate chain (PEM). Without it, TLS has to end at a proxy in front.
    #[arg(long, env = "BROKKR_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "BROKKR_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Connections to the database, at most.
    #[arg(long, env = "BROKKR_DATABASE_CONNECTIONS", default_value_t = 20, value_name = "COUNT")]
    pub database_connections: u32,
    /// Connections from agents and people, at most.
    #[arg(long, env = "BROKKR_MAX_CONNECTIONS", default_value_t = 65_536, value_name = "COUNT")]
    pub max_connections: usize,
    /// Proxies whose `X-Forwarded-For` is believed: addresses or networks such as 10.0.0.0/8, separated by commas.
    #[arg(long, env = "BROKKR_TRUSTED_PROXIES", value_delimiter = ',', value_name = "NETWORKS")]
    pub trusted_proxies: Vec<Network>,
    /// Whether requests are counted per token, agent and address, and refused if there are too many.
    #[arg(long, env = "BROKKR_RATE_LIMITS", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub rate_limits: bool,
    /// How log lines look.
    #[arg(long, env = "BROKKR_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
