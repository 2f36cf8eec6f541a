//! The committed OpenAPI document is current, and its examples match its schemas.

mod schema;

use anyhow::{Context as _, Result};
use brokkr_broker::router;
use serde_json::Value;

#[test]
fn the_committed_openapi_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let current = router::openapi_json();
    assert!(committed.trim_end() == current.trim_end(), "docs/openapi.json is stale: run `cargo xtask docs`");
}

#[test]
fn every_body_has_an_example_that_fits_its_schema() -> Result<()> {
    let document: Value = serde_json::from_str(&router::openapi_json())?;
    let mut checked = 0;
    for route in router::table().iter().map(|route| route.name) {
        let (method, path) = route.split_once(' ').context("METHOD /path")?;
        let operation = &document["paths"][path][method.to_lowercase()];
        let asked = operation["requestBody"]["content"].as_object();
        let answered = operation["responses"].as_object().context("a route answers")?;
        let good = answered.iter().filter(|(status, _)| status.starts_with('2'));
        let contents: Vec<_> = good.filter_map(|(_, answer)| answer["content"].as_object()).collect();
        // If a route has several successful responses, one of them has an example.
        let shown: Vec<_> = contents
            .iter()
            .flat_map(|content| content.values())
            .filter(|body| body.get("example").is_some())
            .collect();
        assert!(contents.is_empty() || !shown.is_empty(), "{route} has no example of a response");
        let asked: Vec<_> = asked.into_iter().flat_map(|content| content.values()).collect();
        assert!(
            asked.iter().all(|body| body.get("example").is_some()),
            "{route} has no example of a request"
        );
        for body in shown.into_iter().chain(asked) {
            let misfits = schema::misfits(&document, &body["schema"], &body["example"]);
            assert!(
                misfits.is_empty(),
                "{route} has an example that does not match its schema: {misfits:#?}"
            );
            checked += 1;
        }
    }
    assert!(checked > 80, "{checked}");
    let problem = &document["components"]["schemas"]["Problem"];
    assert_eq!(schema::misfits(&document, problem, &problem["examples"][0]), Vec::<String>::new());
    Ok(())
}
