//! The contract between the handler of a poll and the connection that the poll waits on.
//!
//! A waiting poll must cost little: fifty thousand agents wait at once. A request inside the router costs
//! eight kilobytes for its layers. So the handler returns at once, and the listener waits.

use std::sync::Arc;

use async_trait::async_trait;
use axum::response::Response;

/// A poll that was answered with "nothing new" and can be repeated without parsing the head of the request
/// again.
#[async_trait]
pub trait RepeatPoll: Send + Sync {
    /// Waits as long as the poll asked, and returns the response if it is still "nothing new". None: the
    /// request has to go through the router again.
    async fn answer(&self) -> Option<Response>;
}

/// Request extension: the listener waits for the poll itself.
#[derive(Clone, Copy, Debug)]
pub struct WaitInListener;

/// Response extension: how the listener continues.
#[derive(Clone)]
pub enum PollResult {
    /// The response is sent; the same request may be repeated.
    Answered(Arc<dyn RepeatPoll>),
    /// Nothing is new yet. The response is not sent; the listener waits.
    Parked(Arc<dyn RepeatPoll>),
}
