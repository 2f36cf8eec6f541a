//! Log lines and spans. Every request has a span with its id, so that what is logged on its way can be found by it.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

pub fn log_to_stderr(format: LogFormat) {
    let filter = EnvFilter::try_from_env("BROKKR_LOG").unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}
