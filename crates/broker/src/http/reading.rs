//! Manifests are read off the threads that serve, and a few at a time: eight megabytes of YAML take a while, and a
//! manifest that is at every limit takes a few hundred megabytes as long as it is read.

use brokkr_api::ErrorCode;
use tokio::sync::Semaphore;

use crate::error::ApiError;

static PLACES: Semaphore = Semaphore::const_new(2);

/// Does the work when there is a place for it; `failed` says what could not be done if it panicked.
pub async fn reading<T: Send + 'static>(
    failed: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let because = |error: Box<dyn std::error::Error + Send + Sync>| {
        ApiError::new(ErrorCode::BRK9001, failed).because(std::io::Error::other(error))
    };
    let place = PLACES.acquire().await.map_err(|error| because(error.into()))?;
    let done = tokio::task::spawn_blocking(move || {
        // Kept by the work: a caller that goes away does not make room while it still goes on.
        let _place = place;
        work()
    });
    done.await.map_err(|error| because(error.into()))
}
