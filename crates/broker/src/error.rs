//! The API error: a problem document for the caller and a cause for the log.

use std::error::Error;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use brokkr_api::audit::RefusalReason;
use brokkr_api::{ErrorCode, Problem};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

pub type ApiResult<T = Response> = Result<T, ApiError>;

#[derive(Debug)]
pub struct ApiError {
    problem: Problem,
    retry_after: Option<u64>,
    refusal: Option<RefusalReason>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

/// Response extension: carries the problem and its cause to the outermost middleware, which adds the request id and logs.
#[derive(Clone, Debug)]
pub struct ProblemReport {
    pub problem: Problem,
    /// Set if the attempt belongs into the audit log.
    pub refusal: Option<RefusalReason>,
    pub cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl ApiError {
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let refusal = (code == ErrorCode::BRK1002).then_some(RefusalReason::PermissionDenied);
        Self { problem: Problem::new(code, detail), retry_after: None, refusal, cause: None }
    }

    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(ErrorCode::BRK2001, format!("there is no such {what}"))
    }

    #[must_use]
    pub fn invalid_request(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::BRK2003, detail)
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Replaces the status of the error code where HTTP has a more specific one.
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

    /// Sets the number that the caller has to confirm when it repeats the request.
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

    /// Marks the attempt as one that belongs into the audit log.
    #[must_use]
    pub fn refused_for(mut self, reason: RefusalReason) -> Self {
        self.refusal = Some(reason);
        self
    }

    #[must_use]
    pub fn refusal(&self) -> Option<RefusalReason> {
        self.refusal
    }

    /// Attaches the cause, for the log only.
    #[must_use]
    pub fn because(self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.because_shared(Arc::new(cause))
    }

    /// Attaches a cause that several requests share.
    #[must_use]
    pub fn because_shared(mut self, cause: Arc<dyn Error + Send + Sync>) -> Self {
        self.cause = Some(cause);
        self
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
        response.extensions_mut().insert(ProblemReport {
            problem: self.problem,
            refusal: self.refusal,
            cause: self.cause,
        });
        response
    }
}
