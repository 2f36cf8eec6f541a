//! Examples of requests and responses in the OpenAPI document. `tests/broker/examples.rs` calls every route,
//! records the examples, and fails if the committed ones differ.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Content, RefOr, Schema};

const RECORDED: &str = include_str!("../../../../docs/api-examples.json");
/// The name of the problem document among the examples.
const PROBLEM: &str = "problem";

/// Examples by name of the route.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Examples(BTreeMap<String, Example>);

#[derive(Debug, Deserialize)]
struct Example {
    request: Option<Value>,
    status: u16,
    answer: Option<Value>,
    /// The same response in other media types.
    #[serde(default)]
    also: BTreeMap<String, Value>,
}

impl Examples {
    /// Returns the recorded examples; none if they cannot be parsed, in which case a test fails.
    pub fn recorded() -> Self {
        serde_json::from_str(RECORDED).unwrap_or_default()
    }

    /// Puts the example of a route where its bodies are described.
    pub fn show(&self, route: &str, operation: &mut Operation) {
        let Some(example) = self.0.get(route) else { return };
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            body.content.values_mut().for_each(|content| put(content, example.request.as_ref()));
        }
        if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut(&example.status.to_string()) {
            for (media_type, content) in &mut answer.content {
                put(content, example.also.get(media_type).or(example.answer.as_ref()));
            }
        }
    }

    /// Returns the schema of problem documents with an example.
    pub fn of_problem(&self, mut schema: RefOr<Schema>) -> RefOr<Schema> {
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.examples.extend(self.0.get(PROBLEM).and_then(|example| example.answer.clone()));
        }
        schema
    }
}

fn put(content: &mut RefOr<Content>, example: Option<&Value>) {
    if let RefOr::T(content) = content {
        content.example = example.cloned();
    }
}
