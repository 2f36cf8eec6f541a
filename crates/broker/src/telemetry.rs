//! Log lines and traces.
//!
//! The two have separate spans. Those of log lines carry the request id; those of traces follow the naming conventions of
//! OpenTelemetry, continue the caller's trace, and exist only if a collector is configured.

mod traces;

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt as _, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};
use url::Url;

pub use traces::{TRACES, Traces, TracesError, of_request};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// Logs to standard error, and sends traces to the collector if there is one. Keep the result until the process exits.
pub fn start(format: LogFormat, collector: Option<&Url>) -> Result<Option<Traces>, TracesError> {
    let chosen = EnvFilter::try_from_env("BROKKR_LOG").unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let no_traces = Targets::new().with_default(LevelFilter::TRACE).with_target(TRACES, LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let traces = collector.map(Traces::to).transpose()?;
    let spans = traces
        .as_ref()
        .map(|traces| traces.layer().with_filter(Targets::new().with_target(TRACES, LevelFilter::INFO)));
    tracing_subscriber::registry().with(lines.with_filter(chosen.and(no_traces))).with(spans).init();
    Ok(traces)
}
