//! Whether this replica is stopping.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The two steps of a shutdown.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// The replica still serves, but reports that it is not ready and closes connections after each response.
    pub leaving: CancellationToken,
    /// Later: no new connections, idle connections close, long polls are answered.
    pub draining: CancellationToken,
    /// The time over which waiting polls are answered.
    pub spread: Duration,
}

impl Shutdown {
    #[must_use]
    pub fn new(spread: Duration) -> Self {
        Self { spread, ..Self::default() }
    }

    /// Resolves at a random moment of the drain, so that waiting agents do not all reconnect at once.
    pub async fn released(&self) {
        self.draining.cancelled().await;
        tokio::time::sleep(self.spread.mul_f64(rand::random::<f64>())).await;
    }
}
