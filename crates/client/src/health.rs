//! Endpoints of a replica outside the API: readiness and metrics.

use brokkr_api::health::Health;

use crate::response::InvalidResponse;
use crate::{Client, Result};

/// The maximum size of a response; even the metrics of the largest installation are much smaller.
const METRICS_BYTES: usize = 16 * 1024 * 1024;

impl Client {
    /// Reads whether the replica is ready for requests, and which of its parts do not work.
    pub async fn ready(&self) -> Result<Health> {
        self.send(self.read_beside("readyz").accept("application/json")).await?.json()
    }

    /// Reads the metrics of a replica as text. Only the admin listener (`--admin-listen`) serves them.
    pub async fn metrics(&self) -> Result<String> {
        let mut call = self.read_beside("metrics");
        call.limit = METRICS_BYTES;
        let answer = self.send(call).await?;
        if answer.is_web_page() {
            return Err(InvalidResponse::WebPage { status: answer.status.as_u16() }.at(&answer.url));
        }
        let unreadable =
            || InvalidResponse::Unreadable { reason: "it is not valid UTF-8".to_owned() }.at(&answer.url);
        String::from_utf8(answer.body.to_vec()).map_err(|_| unreadable())
    }
}
