//! Flags of webhooks.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::domain::webhooks::guard::Guard;
use crate::domain::webhooks::network::Network;
use crate::state::webhooks::WebhookOptions;

#[derive(Clone, Debug, clap::Args)]
pub struct WebhookArgs {
    /// Key that secrets of webhooks are stored with: 32 random bytes in base64 (`openssl rand -base64 32`), the same on
    /// every replica. Without it, no webhook can be made.
    #[arg(long, env = "BROKKR_SECRET_KEY", hide_env_values = true, value_name = "KEY")]
    pub secret_key: Option<SecretString>,
    /// Networks that webhooks may reach although they are not public, such as 10.20.0.0/16.
    #[arg(long, env = "BROKKR_WEBHOOK_NETWORKS", value_delimiter = ',', value_name = "NETWORK")]
    pub webhook_networks: Vec<Network>,
    /// Allow webhooks over http, without encryption.
    #[arg(long, env = "BROKKR_WEBHOOK_HTTP")]
    pub webhook_http: bool,
    /// Allow webhooks on other ports than 443 and 8443.
    #[arg(long, env = "BROKKR_WEBHOOK_ANY_PORT")]
    pub webhook_any_port: bool,
    /// Certificates (PEM) that receivers of webhooks may be signed by, beside those that the system trusts.
    #[arg(long, env = "BROKKR_WEBHOOK_CA", value_name = "FILE")]
    pub webhook_ca: Option<PathBuf>,
    /// How long a failure or drift has to last before webhooks are told of it.
    #[arg(long, env = "BROKKR_WEBHOOK_GRACE", default_value = "5m", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub webhook_grace: Duration,
}

impl WebhookArgs {
    #[must_use]
    pub fn options(&self) -> WebhookOptions {
        WebhookOptions {
            guard: Guard {
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
