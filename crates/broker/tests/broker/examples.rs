//! Records the examples of the OpenAPI document: a tour calls every route as a user would, values that differ between runs
//! are normalized, and the result is the committed `docs/api-examples.json`.
//!
//! | module     | contents                                                      |
//! |------------|---------------------------------------------------------------|
//! | `recorder` | records requests and responses by route                       |
//! | `normal`   | normalizes ids, times and secrets                             |
//! | `tour`     | the calls, chapter by chapter                                 |

mod normal;
mod recorder;
mod tour;

use std::collections::BTreeMap;

use anyhow::Result;
use brokkr_broker::router;

use recorder::{Example, PROBLEM};

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api-examples.json");
const RENEW: &str = "run `INSTA_UPDATE=always cargo xtask test every_route_has_an_example`, then `cargo xtask docs`, and \
                     read the difference";

/// Routes without an example, with the reason.
const WITHOUT: [(&str, &str); 1] =
    [("GET /api/v1/openapi.json", "it returns the document that contains the examples")];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_has_an_example_that_matches_its_response() -> Result<()> {
    let examples = Box::pin(tour::walk()).await?;
    let routes: Vec<&str> = router::table().iter().map(|route| route.name).collect();
    let missing: Vec<&&str> = routes
        .iter()
        .filter(|route| !examples.contains_key(**route) && WITHOUT.iter().all(|(name, _)| name != *route))
        .collect();
    assert!(missing.is_empty(), "the tour in tests/broker/examples/tour does not call {missing:#?}");
    assert!(examples.contains_key(PROBLEM), "the tour was never refused");

    let text = serde_json::to_string_pretty(&examples)? + "\n";
    if std::env::var_os("INSTA_UPDATE").is_some_and(|mode| mode == "always") {
        std::fs::write(COMMITTED, text)?;
        return Ok(());
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
    let differ = differences(&serde_json::from_str(&committed).unwrap_or_default(), &examples)?;
    assert!(committed == text, "docs/api-examples.json is stale: {RENEW}\n{differ}");
    Ok(())
}

/// Returns the first route with a changed example, before and after.
fn differences(before: &BTreeMap<String, Example>, now: &BTreeMap<String, Example>) -> Result<String> {
    let routes = before.keys().chain(now.keys());
    let Some(route) = routes.into_iter().find(|route| before.get(*route) != now.get(*route)) else {
        return Ok("only the layout of the file differs".to_owned());
    };
    let (before, now) = (before.get(route), now.get(route));
    Ok(format!(
        "{route} was {}\nand is {}",
        serde_json::to_string_pretty(&before)?,
        serde_json::to_string_pretty(&now)?
    ))
}
