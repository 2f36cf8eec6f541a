//! Records requests and responses by route. The route is found by the path, as in the router.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anyhow::{Context as _, Result, ensure};
use brokkr_broker::router;
use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Request, RequestBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::normal::Normal;

/// The name of the example of a problem document.
pub const PROBLEM: &str = "problem";

/// The example of one route, as it is committed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Example {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
    pub status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// The same response in other media types.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, Value>,
}

/// One request and its response.
#[derive(Debug)]
pub struct Exchange {
    pub route: String,
    pub request: Option<Value>,
    pub status: u16,
    pub media_type: String,
    pub answer: Option<Value>,
    /// When the response arrived.
    pub at: Timestamp,
}

pub struct Recorder {
    routes: Vec<&'static str>,
    started: Timestamp,
    exchanges: Mutex<Vec<Exchange>>,
}

impl Recorder {
    /// Starts recording. If a response contains a time before this moment, the time is from the setup of the
    /// database, not from the tour.
    pub fn start() -> Self {
        let routes = router::table().iter().map(|route| route.name).collect();
        Self { routes, started: Timestamp::now(), exchanges: Mutex::default() }
    }

    /// Sends the request and records the response; fails if it is not a success.
    pub async fn ask(&self, request: RequestBuilder) -> Result<Value> {
        let exchange = self.exchange(request).await?;
        ensure!((200..300).contains(&exchange.status), "{exchange:?}");
        self.note(exchange)
    }

    /// Sends and records a request that is refused; its response is the example of a problem document for all routes.
    pub async fn ask_in_vain(&self, request: RequestBuilder) -> Result<Value> {
        let exchange = self.exchange(request).await?;
        ensure!(exchange.media_type == brokkr_api::protocol::PROBLEM_MEDIA_TYPE, "{exchange:?}");
        self.note(Exchange { route: PROBLEM.to_owned(), ..exchange })
    }

    /// Records the first message of a stream, which does not end.
    pub fn message(&self, path: &str, text: String) -> Result<()> {
        let route = self.route("GET", path)?;
        let media_type = "text/event-stream".to_owned();
        let answer = Some(Value::String(text));
        let at = Timestamp::now();
        self.note(Exchange { route, request: None, status: 200, media_type, answer, at }).map(drop)
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Exchange> {
        let (client, request) = request.build_split();
        let request = request?;
        let route = self.route(request.method().as_str(), request.url().path())?;
        let asked = body(&request)?;
        let response = client.execute(request).await?;
        let status = response.status().as_u16();
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_owned();
        let bytes = response.bytes().await?;
        let answer = read(&media_type, &bytes)?;
        Ok(Exchange { route, request: asked, status, media_type, answer, at: Timestamp::now() })
    }

    fn note(&self, exchange: Exchange) -> Result<Value> {
        let answer = exchange.answer.clone().unwrap_or_default();
        let mut exchanges = self.exchanges.lock().expect("never poisoned");
        let again = exchanges
            .iter()
            .any(|before| (&before.route, &before.media_type) == (&exchange.route, &exchange.media_type));
        ensure!(!again, "{} is called twice in the tour", exchange.route);
        exchanges.push(exchange);
        Ok(answer)
    }

    /// Returns the route of a path; if two match, the more specific one.
    fn route(&self, method: &str, path: &str) -> Result<String> {
        let fits = |name: &&&str| {
            let Some((of_route, template)) = name.split_once(' ') else { return false };
            let (parts, wanted) = (path.split('/'), template.split('/'));
            let same = |(part, wanted): (&str, &str)| part == wanted || wanted.starts_with('{');
            of_route == method
                && parts.clone().count() == wanted.clone().count()
                && parts.zip(wanted).all(same)
        };
        let route = self.routes.iter().filter(fits).min_by_key(|name| name.matches('{').count());
        route.map(ToString::to_string).with_context(|| format!("no route for {method} {path}"))
    }

    /// Returns all records, normalized. `given` are values of this run and their replacements.
    pub fn examples(self, given: Vec<(String, String)>) -> Result<BTreeMap<String, Example>> {
        let mut exchanges = self.exchanges.into_inner()?;
        let mut normal = Normal::of(&exchanges, self.started, given);
        let mut examples: BTreeMap<String, Example> = BTreeMap::new();
        for exchange in &mut exchanges {
            for body in [&mut exchange.request, &mut exchange.answer].into_iter().flatten() {
                normal.rewrite("", body);
            }
        }
        for Exchange { route, request, status, media_type, answer, .. } in exchanges {
            match examples.get_mut(&route) {
                None => {
                    examples.insert(route, Example { request, status, answer, also: BTreeMap::new() });
                }
                Some(first) => first.also.extend(answer.map(|answer| (media_type, answer))),
            }
        }
        Ok(examples)
    }
}

/// Returns the body of a request: as JSON if its content type says so, otherwise as text.
fn body(request: &Request) -> Result<Option<Value>> {
    let Some(bytes) = request.body().and_then(|body| body.as_bytes()) else { return Ok(None) };
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    read(media_type.unwrap_or_default(), bytes)
}

fn read(media_type: &str, bytes: &[u8]) -> Result<Option<Value>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let is_json = media_type == "application/json" || media_type.ends_with("+json");
    Ok(Some(if is_json {
        serde_json::from_slice(bytes)?
    } else {
        Value::String(String::from_utf8(bytes.to_vec())?)
    }))
}
