//! Reads the body of a request within the limit of its route, the budget of the replica, and a deadline.

use std::time::Duration;

use axum::body::Body;
use brokkr_api::ErrorCode;
use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use super::signed_body::is_other_body;
use crate::access::binding::BoundPart;
use crate::error::ApiError;
use crate::metrics::RefusedBody;
use crate::state::body_budget::BodyBuffer;

/// Request extension: the largest body of the route, in bytes. Set by the guard from the table of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimit(pub usize);

/// The time within which every body has to arrive.
const DEADLINE: Duration = Duration::from_secs(30);
/// Long enough for a lost packet to be sent again a few times.
const GRACE: Duration = Duration::from_secs(10);
/// After the grace, a body has to arrive at least this fast, in bytes per second. A caller that sends one byte a
/// second would otherwise keep its share of the budget until the deadline.
const SLOWEST: usize = 1024;

/// Reads the whole body.
pub async fn read_body(
    mut body: Body,
    BodyLimit(limit): BodyLimit,
    mut buffer: BodyBuffer,
) -> Result<Bytes, RefusedBody> {
    // Before any byte is read: a client that waits for `100 Continue` does not send the body at all.
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(RefusedBody::TooLarge);
    }
    let begun = Instant::now();
    loop {
        let until = begun + time_for(buffer.len());
        let frame = match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) if is_other_body(&error) => return Err(RefusedBody::NotSigned),
            Ok(Some(Err(_))) => return Err(RefusedBody::Truncated),
            Ok(None) => return Ok(buffer.into_bytes()),
            Err(_) => return Err(RefusedBody::Slow),
        };
        let Some(chunk) = frame.data_ref() else { continue };
        if buffer.len() + chunk.len() > limit {
            return Err(RefusedBody::TooLarge);
        }
        buffer.push(chunk).map_err(|_| RefusedBody::Busy)?;
    }
}

/// Returns the time, from the head of the request, until more than these bytes have to be there.
fn time_for(received: usize) -> Duration {
    let seconds = u64::try_from(received / SLOWEST).unwrap_or(u64::MAX);
    (GRACE.saturating_add(Duration::from_secs(seconds))).min(DEADLINE)
}

/// Returns the error for a refused body.
pub fn body_error(refused: RefusedBody, BodyLimit(limit): BodyLimit) -> ApiError {
    match refused {
        RefusedBody::TooLarge => ApiError::new(
            ErrorCode::BRK2006,
            format!("the body of this request can have at most {limit} bytes"),
        ),
        RefusedBody::NotSigned => BoundPart::Body.refusal(),
        RefusedBody::Truncated => ApiError::invalid_request("the body was truncated"),
        RefusedBody::Slow => ApiError::invalid_request("the body did not arrive in time")
            .with_status(StatusCode::REQUEST_TIMEOUT),
        RefusedBody::Busy => ApiError::new(
            ErrorCode::BRK3008,
            "too many requests are being received; this one was not processed",
        )
        .retry_after(1),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::state::body_budget::BodyBudget;

    #[test]
    fn a_body_that_drips_is_refused_long_before_the_deadline_and_a_steady_one_is_not() {
        assert_eq!(time_for(0), GRACE, "nothing has arrived");
        assert_eq!(time_for(10), GRACE, "one byte a second");
        assert_eq!(time_for(10 * SLOWEST), GRACE + Duration::from_secs(10));
        assert_eq!(time_for(usize::MAX), DEADLINE);
    }

    fn chunks(count: usize, size: usize) -> Body {
        let chunk = move |_| Ok::<_, Infallible>(Bytes::from(vec![0; size]));
        Body::from_stream(futures::stream::iter((0..count).map(chunk)))
    }

    #[tokio::test]
    async fn a_body_stays_within_the_limit_of_its_route_and_the_budget() {
        let budget = BodyBudget::new(1600);
        let read =
            async |body: Body, limit| read_body(body, BodyLimit(limit), budget.buffer(limit, false)).await;
        assert_eq!(read(Body::from(vec![0; 101]), 100).await, Err(RefusedBody::TooLarge));
        assert_eq!(read(Body::from(vec![0; 100]), 100).await.map(|body| body.len()), Ok(100));
        // The length of these is not announced.
        assert_eq!(read(chunks(10, 10), 100).await.map(|body| body.len()), Ok(100));
        assert_eq!(read(chunks(11, 10), 100).await, Err(RefusedBody::TooLarge));
        assert_eq!(read(chunks(11, 10), 1000).await, Err(RefusedBody::Busy));
        assert_eq!(budget.used(), (0, 0));
    }
}
