//! The one error of handlers: a problem document to be, with what caused it for the log.

use std::error::Error;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use brokkr_api::{ErrorCode, Problem};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use crate::store::StoreError;

#[derive(Debug)]
pub struct ApiError {
    problem: Problem,
    retry_after: Option<u64>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

/// Travels from the error to the frame, which knows the request id and logs once.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub problem: Problem,
    pub cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl ApiError {
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { problem: Problem::new(code, detail), retry_after: None, cause: None }
    }

    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(ErrorCode::BRK2001, format!("there is no such {what}"))
    }

    #[must_use]
    pub fn unreadable(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::BRK2003, detail)
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Where HTTP has a more fitting status than the code's own.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.problem.status = status.as_u16();
        self
    }

    #[must_use]
    pub fn with_errors(mut self, errors: Vec<String>) -> Self {
        self.problem = self.problem.with_errors(errors);
        self
    }

    /// Tells the number that the same request may come with.
    #[must_use]
    pub fn expecting(mut self, number: u64) -> Self {
        self.problem.expect = Some(number);
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    #[must_use]
    pub fn because(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Arc::new(error).into()
    }
}

/// A failure that several requests share.
impl From<Arc<StoreError>> for ApiError {
    fn from(error: Arc<StoreError>) -> Self {
        let mut told = if error.is_unavailable() {
            Self::new(ErrorCode::BRK3003, "the database does not answer, or is too busy").retry_after(1)
        } else if error.is_unwritable() {
            Self::unreadable("a text has a NUL character in it")
        } else {
            Self::new(ErrorCode::BRK9001, "the broker could not do this")
        };
        told.cause = Some(error);
        told
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = status.into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response.extensions_mut().insert(Trouble { problem: self.problem, cause: self.cause });
        response
    }
}
