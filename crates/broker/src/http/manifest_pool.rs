//! Parses manifests on blocking threads, two at a time: 8 MiB of YAML take a while, and a manifest that
//! reaches every limit takes a few hundred megabytes of memory.

use brokkr_api::ErrorCode;
use tokio::sync::Semaphore;

use crate::error::{ApiError, ApiResult};

static SLOTS: Semaphore = Semaphore::const_new(2);

/// Runs the work when a slot is free; `failed` is the error if it panics.
pub async fn run<T: Send + 'static>(
    failed: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> ApiResult<T> {
    let because = |error: Box<dyn std::error::Error + Send + Sync>| {
        ApiError::new(ErrorCode::BRK9001, failed).because(std::io::Error::other(error))
    };
    let slot = SLOTS.acquire().await.map_err(|error| because(error.into()))?;
    let done = tokio::task::spawn_blocking(move || {
        // Held by the work: if the caller disconnects, the slot stays taken until the work ends.
        let _slot = slot;
        work()
    });
    done.await.map_err(|error| because(error.into()))
}
