//! What a replica tells of itself, beside the API: whether it is ready, and its metrics.

use brokkr_api::health::Health;

use crate::response::InvalidResponse;
use crate::{Client, Result};

/// Metrics of the largest installation are a fraction of this.
const METRICS_BYTES: usize = 16 * 1024 * 1024;

impl Client {
    /// Whether requests may come to the replica that answers, and what is in trouble there.
    pub async fn ready(&self) -> Result<Health> {
        self.send(self.read_beside("readyz").accept("application/json")).await?.json()
    }

    /// The metrics of a replica, as text. Only the listener for them has these (`--admin-listen`).
    pub async fn metrics(&self) -> Result<String> {
        let mut call = self.read_beside("metrics");
        call.limit = METRICS_BYTES;
        let answer = self.send(call).await?;
        if answer.is_web_page() {
            return Err(InvalidResponse::WebPage { status: answer.status.as_u16() }.at(&answer.url));
        }
        let unreadable =
            || InvalidResponse::Unreadable { reason: "it is no text".to_owned() }.at(&answer.url);
        String::from_utf8(answer.body.to_vec()).map_err(|_| unreadable())
    }
}
