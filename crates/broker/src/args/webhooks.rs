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
    /// Time that a failure or drift has to last before webhooks are notified.
    #[arg(long, env = "BROKKR_WEBHOOK_GRACE", default_value = "5m", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub webhook_grace: Duration,
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
        }
    }
}
