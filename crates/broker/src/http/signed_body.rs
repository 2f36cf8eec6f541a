//! The body of an agent's write: its digest is part of the agent's assertion, and is compared while the body is read.
//!
//! The guard verifies the signature before it lets anyone read the body, and then replaces the body by this one. A body
//! that differs ends with an error instead of its end. So no handler can forget the check: it never gets the complete
//! body, and a handler that does not read the body does not depend on it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use brokkr_api::ids::Checksum;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use sha2::{Digest as _, Sha256};

/// The body is not the one that the assertion is for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body differs from the signed one")]
struct OtherBody;

struct SignedBody {
    body: Body,
    /// None once it was compared.
    hash: Option<Sha256>,
    signed: Checksum,
}

/// Returns the body, with an error at its end if its digest is not `signed`.
pub fn expect(body: Body, signed: Checksum) -> Body {
    Body::new(SignedBody { body, hash: Some(Sha256::new()), signed })
}

/// Returns whether reading a body failed because it is not the signed one.
#[must_use]
pub fn is_other_body(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.any(|cause| cause.is::<OtherBody>())
}

impl http_body::Body for SignedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(task));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some(hash)) = (frame.data_ref(), &mut self.hash) {
                    hash.update(data);
                }
            }
            Some(Err(_)) => {}
            None => {
                let hash = self.hash.take();
                if hash.is_some_and(|hash| hash.finalize()[..] != self.signed.0) {
                    return Poll::Ready(Some(Err(axum::Error::new(OtherBody))));
                }
            }
        }
        Poll::Ready(frame)
    }

    // Not the end before the digest was compared, even if nothing is left to read: the default of `is_end_stream`.

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Limited};

    use super::*;

    /// Returns the body; if it fails, whether that is because of its digest.
    async fn read(parts: &[&'static str], signed: &str) -> Result<Bytes, bool> {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok::<_, axum::Error>(Bytes::from_static(part.as_bytes()))).collect();
        let body = expect(Body::from_stream(futures::stream::iter(parts)), Checksum::of(signed.as_bytes()));
        match Limited::new(body, 1000).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) => Err(is_other_body(&*error)),
        }
    }

    #[tokio::test]
    async fn a_body_that_is_not_the_signed_one_is_never_complete() {
        for parts in [&["{}"][..], &["{", "}"], &["", "{", "", "}"]] {
            assert_eq!(read(parts, "{}").await.unwrap(), "{}");
        }
        assert_eq!(read(&[], "").await.unwrap(), "");
        for (parts, signed) in [(&["{}"][..], ""), (&[], "{}"), (&["{"], "{}"), (&["{}", " "], "{}")] {
            assert_eq!(read(parts, signed).await, Err(true));
        }
    }

    #[tokio::test]
    async fn an_empty_body_of_known_length_is_compared_too() {
        let body = expect(Body::empty(), Checksum::of(b"{}"));
        assert!(!http_body::Body::is_end_stream(&body));
        assert!(body.collect().await.is_err());
    }

    #[tokio::test]
    async fn other_errors_of_a_body_are_not_refusals() {
        let cut: [Result<Bytes, std::io::Error>; 1] = [Err(std::io::Error::other("cut"))];
        let body = expect(Body::from_stream(futures::stream::iter(cut)), Checksum::of(b""));
        assert!(!is_other_body(&body.collect().await.unwrap_err()));
    }
}
