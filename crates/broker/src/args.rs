//! Flags and environment, with their docs. Only types; what they do is in `commands` and `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use secrecy::SecretString;

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
    /// Print the first admin token, once. Refuses if there is an admin token already.
    Bootstrap(BootstrapArgs),
    /// Serve the API.
    Serve(ServeArgs),
    /// Print the OpenAPI document.
    Openapi,
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
    #[command(flatten)]
    pub retention: RetentionArgs,
    /// How log lines look.
    #[arg(long, env = "BROKKR_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
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

impl Default for RetentionArgs {
    fn default() -> Self {
        Self { event_days: 30, content_days: 180, content_versions: 20 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
