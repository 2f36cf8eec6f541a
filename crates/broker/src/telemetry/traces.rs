//! Traces, sent to a collector by OTLP over HTTP.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::Span;
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::registry::LookupSpan;
use url::Url;

/// The tracing target of spans that are exported.
pub const TRACES: &str = "brokkr::traces";
/// The timeout of one batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    #[error("failed to create the exporter of traces to {collector}")]
    Exporter { collector: Url, source: ExporterBuildError },
    #[error("failed to create the client for traces")]
    Client(#[from] reqwest::Error),
}

/// The connection to a collector.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    pub fn to(collector: &Url) -> Result<Self, TracesError> {
        let client = Client {
            http: reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?,
            runtime: Handle::current(),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", collector.as_str().trim_end_matches('/')))
            .with_timeout(BATCH_TIMEOUT)
            .build()
            .map_err(|source| TracesError::Exporter { collector: collector.clone(), source })?;
        let provider = SdkTracerProvider::builder()
            .with_resource(Resource::builder().with_service_name("brokkr-broker").build())
            .with_batch_exporter(exporter)
            .build();
        Ok(Self(provider))
    }

    pub(super) fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer().with_tracer(self.0.tracer("brokkr-broker"))
    }

    /// Sends the remaining spans. Blocks, so it does not run on a thread of the runtime.
    pub async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown()).await;
        if let Ok(Err(error)) = ended {
            let error: &dyn Error = &error;
            tracing::warn!(error, "failed to send the last traces");
        }
    }
}

/// Returns the span of a request, as a child of the caller's span if there is one. Disabled without a collector.
pub fn of_request(method: &Method, route: &str, id: &str, headers: &HeaderMap) -> Span {
    let name = format_args!("{method} {route}");
    let span = tracing::info_span!(target: TRACES, "request", otel.name = %name, otel.kind = "server",
        http.request.method = %method, http.route = route, brokkr.request_id = id,
        http.response.status_code = tracing::field::Empty);
    if !span.is_disabled() {
        let caller = TraceContextPropagator::new().extract(&Headers(headers));
        if caller.span().span_context().is_valid() {
            // Fails only without a layer, and then there is no span either.
            let _ = span.set_parent(caller);
        }
    }
    span
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// Batches are sent from a separate thread, which does not know the runtime that requests need.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

#[async_trait::async_trait]
impl opentelemetry_http::HttpClient for Client {
    async fn send_bytes(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, opentelemetry_http::HttpError> {
        let http = self.http.clone();
        let sending = self.runtime.spawn(async move {
            let answer = http.execute(request.try_into()?).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut response = Response::new(answer.bytes().await?);
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            Ok::<_, reqwest::Error>(response)
        });
        Ok(sending.await??)
    }
}
