//! Metrics that broker and agent share: the text format, build information and the process.
//!
//! Each program's own metrics are in its `metrics.rs`; `docs/metrics.md` documents all of them.

mod process;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The media type of OpenMetrics.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns all registered metrics as text.
#[must_use]
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing into memory does not fail.
    let _ = encode(&mut text, registry);
    text
}

/// Registers a gauge with the current number of something.
pub fn gauge(registry: &mut Registry, name: &str, help: &str, value: usize) {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    registry.register(name, help, ConstGauge::new(value));
}

/// Registers a gauge with a current value in seconds.
pub fn seconds(registry: &mut Registry, name: &str, help: &str, value: f64) {
    registry.register(name, help, ConstGauge::new(value));
}

/// Registers the version of the program, and the metrics of its process.
pub fn this_process(registry: &mut Registry, version: &str) {
    registry.register("build", "The program", Info::new([("version", version.to_owned())]));
    if let Some(bytes) = process::resident_bytes() {
        registry.register("process_resident_memory_bytes", "Memory of the process", ConstGauge::new(bytes));
    }
    if let Some(files) = process::open_files() {
        registry.register(
            "process_open_files",
            "Open files of the process, sockets included",
            ConstGauge::new(files),
        );
    }
    if let Some(files) = process::open_files_limit() {
        registry.register(
            "process_open_files_limit",
            "Open files that the process may have",
            ConstGauge::new(files),
        );
    }
    if let Some(seconds) = process::cpu_seconds() {
        registry.register("process_cpu_seconds", "Processor time used", ConstCounter::new(seconds));
    }
}
