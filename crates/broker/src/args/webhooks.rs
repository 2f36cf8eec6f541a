//! Flags of webhooks.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use secrecy::SecretString;

use crate::domain::network::parse_network;
use crate::domain::webhooks::egress_policy::EgressPolicy;
use crate::state::webhooks::WebhookOptions;

#[derive(Clone, Debug, clap::Args)]
pub struct WebhookArgs {
    /// Key to encrypt webhook secrets with: 32 random bytes in base64 (`openssl rand -base64 32`), the same on every
    /// replica. Without it, webhooks cannot be created.
    #[arg(long, env = "BROKKR_SECRET_KEY", hide_env_values = true, value_name = "KEY")]
    pub secret_key: Option<SecretString>,
    /// Non-public networks that webhooks may reach, such as 10.20.0.0/16.
    #[arg(long, env = "BROKKR_WEBHOOK_NETWORKS", value_delimiter = ',', value_parser = parse_network, value_name = "NETWORK")]
    pub webhook_networks: Vec<IpNet>,
    /// Allow webhooks over unencrypted HTTP.
    #[arg(long, env = "BROKKR_WEBHOOK_HTTP")]
    pub webhook_http: bool,
    /// Allow webhooks on ports other than 443 and 8443.
    #[arg(long, env = "BROKKR_WEBHOOK_ANY_PORT")]
    pub webhook_any_port: bool,
    /// Additional CA certificates (PEM) to trust for webhooks.
    #[arg(long, env = "BROKKR_WEBHOOK_CA", value_name = "FILE")]
    pub webhook_ca: Option<PathBuf>,
    /// Time that a failure or drift has to last on an agent before it counts in alerts, and that it has to be over before an
    /// alert is resolved.
    #[arg(long, env = "BROKKR_WEBHOOK_GRACE", default_value = "5m", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub webhook_grace: Duration,
    /// Time that an alert waits for further agents with the same cause before its first message.
    #[arg(long, env = "BROKKR_ALERT_GATHER", default_value = "30s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub alert_gather: Duration,
    /// Minimum time between two messages about the same problem of a stack, and between two that it is resolved.
    #[arg(long, env = "BROKKR_ALERT_INTERVAL", default_value = "1h", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub alert_interval: Duration,
}

impl WebhookArgs {
    #[must_use]
    pub fn options(&self) -> WebhookOptions {
        WebhookOptions {
            policy: EgressPolicy {
                networks: self.webhook_networks.clone(),
                plain_http: self.webhook_http,
                any_port: self.webhook_any_port,
            },
            secret_key: self.secret_key.clone(),
            ca: self.webhook_ca.clone(),
            grace: self.webhook_grace,
            alert_gather: self.alert_gather,
            alert_interval: self.alert_interval,
        }
    }
}

impl Default for WebhookArgs {
    fn default() -> Self {
        Self {
            secret_key: None,
            webhook_networks: Vec::new(),
            webhook_http: false,
            webhook_any_port: false,
            webhook_ca: None,
            webhook_grace: Duration::from_secs(300),
            alert_gather: Duration::from_secs(30),
            alert_interval: Duration::from_secs(3600),
        }
    }
}
