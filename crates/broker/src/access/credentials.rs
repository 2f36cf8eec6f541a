//! Caches what the database says about a credential for a few seconds, so that a busy caller does not cost a query per request.
//!
//! A credential that was revoked is refused at once by the replica that revoked it, and by the others within [`CACHED_FOR`]. The
//! guard checks the expiry each time.
//!
//! Unknown credentials are cached as well, so that a caller that repeats a wrong one costs one query in [`REFUSED_FOR`]. This
//! cannot refuse a credential that was created a moment ago: the key is the hash of 256 random bits, so no one can have asked
//! for it before it existed, and a credential is returned to its owner only after its transaction has committed.

use std::sync::Arc;
use std::time::Duration;

use crate::error::ApiError;
use crate::store::StoreError;

/// How long a credential is cached, and thus how long a revoked one may still be accepted by other replicas.
pub const CACHED_FOR: Duration = Duration::from_secs(2);
/// How long an unknown or revoked credential is refused without a query: longer than a query takes that began before the revocation.
pub const REFUSED_FOR: Duration = Duration::from_secs(10);
pub const CAPACITY: u64 = 10_000;
/// How long after its last use a credential is looked up again without further conditions.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// What is known about credentials of one kind, by the hash of the secret.
#[derive(Debug)]
pub struct Credentials<T: Send + Sync + 'static> {
    known: moka::future::Cache<[u8; 32], Arc<T>>,
    /// Hashes that belonged to no credential a moment ago, or to one that was revoked here.
    unknown: moka::future::Cache<[u8; 32], ()>,
    /// Hashes that belonged to a credential when they were last looked up: their callers do not guess.
    remembered: moka::future::Cache<[u8; 32], ()>,
}

impl<T: Send + Sync + 'static> Default for Credentials<T> {
    fn default() -> Self {
        Self {
            known: moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(CACHED_FOR).build(),
            unknown: moka::future::Cache::builder().max_capacity(CAPACITY).time_to_live(REFUSED_FOR).build(),
            remembered: moka::future::Cache::builder()
                .max_capacity(CAPACITY)
                .time_to_idle(REMEMBERED_FOR)
                .build(),
        }
    }
}

/// Why something is not cached.
#[derive(Debug)]
pub enum Miss {
    Absent,
    Failed(Arc<StoreError>),
}

impl From<StoreError> for Miss {
    fn from(error: StoreError) -> Self {
        Self::Failed(Arc::new(error))
    }
}

impl<T: Send + Sync + 'static> Credentials<T> {
    /// Returns what belongs to the hash, unless it was revoked. Concurrent requests share one query, which is `fetch`.
    /// `admit` has to succeed before a hash that was not seen before is looked up; its result is held until then.
    pub async fn find<P>(
        &self,
        hash: [u8; 32],
        admit: impl Future<Output = Result<P, ApiError>>,
        fetch: impl Future<Output = Result<Option<T>, StoreError>>,
    ) -> Result<Option<Arc<T>>, ApiError> {
        if let Some(known) = self.known.get(&hash).await {
            // Counts as a use.
            self.remembered.get(&hash).await;
            return Ok(Some(known));
        }
        if self.unknown.get(&hash).await.is_some() {
            return Ok(None);
        }
        let permit = if self.remembered.get(&hash).await.is_some() { None } else { Some(admit.await?) };
        // The same credential may have been looked up meanwhile.
        if self.unknown.get(&hash).await.is_some() {
            return Ok(None);
        }
        let fetch = async { fetch.await?.map(Arc::new).ok_or(Miss::Absent) };
        let found = found(self.known.try_get_with(hash, fetch).await)?;
        if self.unknown.get(&hash).await.is_some() {
            // It was revoked after the query had read it.
            self.known.invalidate(&hash).await;
            return Ok(None);
        }
        if found.is_some() {
            self.remembered.insert(hash, ()).await;
        } else {
            self.remembered.invalidate(&hash).await;
            self.unknown.insert(hash, ()).await;
        }
        drop(permit);
        Ok(found)
    }

    /// Removes a credential that was changed here, so that it is looked up again.
    pub async fn forget(&self, hash: &[u8]) {
        if let Ok(hash) = <[u8; 32]>::try_from(hash) {
            self.known.invalidate(&hash).await;
        }
    }

    /// Refuses a credential that was revoked here.
    pub async fn refuse(&self, hash: &[u8]) {
        if let Ok(hash) = <[u8; 32]>::try_from(hash) {
            // First, so that a query that is under way does not bring it back.
            self.unknown.insert(hash, ()).await;
            self.known.invalidate(&hash).await;
            self.remembered.invalidate(&hash).await;
        }
    }
}

/// Returns what was found; none if it does not exist.
pub fn found<T>(fetched: Result<T, Arc<Miss>>) -> Result<Option<T>, Arc<StoreError>> {
    match fetched {
        Ok(found) => Ok(Some(found)),
        Err(miss) => match &*miss {
            Miss::Absent => Ok(None),
            Miss::Failed(error) => Err(Arc::clone(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_query_that_began_before_the_revocation_does_not_bring_the_credential_back() {
        let credentials = Arc::new(Credentials::<u8>::default());
        let (hash, (answer, answered)) = ([7; 32], oneshot::channel());
        let (begin, begun) = oneshot::channel();
        let finding = tokio::spawn({
            let credentials = Arc::clone(&credentials);
            async move {
                let fetch = async {
                    begin.send(()).unwrap();
                    Ok(Some(answered.await.unwrap()))
                };
                credentials.find(hash, async { Ok(()) }, fetch).await
            }
        });
        begun.await.unwrap();
        credentials.refuse(&hash).await;
        answer.send(1).unwrap();
        assert_eq!(finding.await.unwrap().unwrap(), None);
        let again = credentials.find(hash, async { Ok(()) }, async { Ok(Some(2)) }).await.unwrap();
        assert_eq!(again, None, "it is refused without a query");
        let other = credentials.find([8; 32], async { Ok(()) }, async { Ok(Some(3)) }).await.unwrap();
        assert_eq!(other.as_deref(), Some(&3));
    }
}
