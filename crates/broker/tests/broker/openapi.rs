//! The committed description of the API is the current one.

use brokkr_broker::router;

#[test]
fn the_committed_openapi_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let current = router::openapi_json();
    assert!(
        committed.trim_end() == current.trim_end(),
        "docs/openapi.json is stale: run `cargo run -p brokkr-broker -- openapi > docs/openapi.json`"
    );
}
