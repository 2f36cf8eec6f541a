//! Server-sent events that resume after the last event if the connection is lost.
//!
//! A stream that ends, stalls or cannot be reached is requested again with `Last-Event-ID`, for the time of the client's retry
//! policy, so that no event is missed or repeated.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Duration;

use brokkr_api::events::Event;
use brokkr_api::status::StackStatus;
use http::{HeaderName, Method};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use crate::builder::Client;
use crate::error::{ClientError, Result};
use crate::events::EventQuery;
use crate::exchange::{ORDINARY_TIME, whole};
use crate::response::{InvalidResponse, Response, media_type};
use crate::retry::Retry;

mod parser;

use parser::{Parser, Raw};

const MEDIA_TYPE: &str = "text/event-stream";
/// The broker sends something every 15 s; a connection that is silent for three times that is dead.
const SILENCE: Duration = Duration::from_secs(45);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One message of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<T> {
    Item(T),
    /// The last event id is from before a restore: the events since then must be read as a list.
    Reset,
}

/// An open stream.
#[derive(Debug)]
pub struct Stream<T> {
    client: Client,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    last_id: Option<String>,
    open: Option<Open>,
    waiting: VecDeque<Raw>,
    /// When reading started to fail.
    lost: Option<Instant>,
    pause: Duration,
    item: PhantomData<T>,
}

#[derive(Debug)]
struct Open {
    response: reqwest::Response,
    parser: Parser,
    url: Url,
}

impl Client {
    /// Returns a stream of the events of a project from now on.
    #[must_use]
    pub fn follow_events(&self, query: &EventQuery) -> Stream<Event> {
        let stack = query.stack.clone().map(|stack| ("stack", stack));
        let agent = query.agent.clone().map(|agent| ("agent", agent));
        self.stream(&["events", "stream"], stack.into_iter().chain(agent).collect())
    }

    /// Returns a stream of the status of a stack, given by name or id, from now on.
    #[must_use]
    pub fn follow_status(&self, stack: &str) -> Stream<StackStatus> {
        self.stream(&["stacks", stack, "status", "stream"], Vec::new())
    }

    fn stream<T>(&self, path: &[&str], query: Vec<(&'static str, String)>) -> Stream<T> {
        Stream {
            client: self.clone(),
            path: path.iter().map(|&part| part.to_owned()).collect(),
            query,
            last_id: None,
            open: None,
            waiting: VecDeque::new(),
            lost: None,
            pause: FIRST_PAUSE,
            item: PhantomData,
        }
    }
}

impl<T: DeserializeOwned> Stream<T> {
    /// Opens the stream if it is not open. Events after this call are not missed.
    pub async fn begin(&mut self) -> Result<()> {
        while self.open.is_none() {
            match self.connect().await {
                Ok(open) => self.open = Some(open),
                Err(error) => self.wait_after(error).await?,
            }
        }
        Ok(())
    }

    /// Returns the next message, or an error that is not worth retrying.
    pub async fn next(&mut self) -> Result<Message<T>> {
        loop {
            if let Some(raw) = self.waiting.pop_front() {
                if raw.id.is_some() {
                    self.last_id = raw.id;
                }
                match raw.event.as_str() {
                    "reset" => return Ok(Message::Reset),
                    "event" | "status" => return self.read(&raw.data).map(Message::Item),
                    // A newer broker may send other types of messages.
                    _ => continue,
                }
            }
            self.begin().await?;
            let Some(open) = &mut self.open else { continue };
            let url = open.url.clone();
            match tokio::time::timeout(SILENCE, open.response.chunk()).await {
                Ok(Ok(Some(chunk))) => {
                    match open.parser.feed(&chunk) {
                        Some(raw) => self.waiting.extend(raw),
                        None => return Err(InvalidResponse::TooLarge { limit: parser::MAX_BYTES }.at(&url)),
                    }
                    (self.lost, self.pause) = (None, FIRST_PAUSE);
                }
                // A replica that shuts down ends the stream in the same way. Another replica continues it.
                Ok(Ok(None) | Err(_)) => self.close(InvalidResponse::CutOff.at(&url)).await?,
                Err(_) => self.close(ClientError::Timeout { url, after: SILENCE }).await?,
            }
        }
    }

    fn read(&self, data: &str) -> Result<T> {
        serde_json::from_str(data).map_err(|error| {
            let reason = format!("{:?} error at column {}", error.classify(), error.column());
            InvalidResponse::Unreadable { reason }.at(self.client.base())
        })
    }

    async fn close(&mut self, why: ClientError) -> Result<()> {
        self.open = None;
        self.wait_after(why).await
    }

    /// Waits before the next attempt, unless the retry time is up.
    async fn wait_after(&mut self, error: ClientError) -> Result<()> {
        let policy = self.client.retry_policy();
        let lost = *self.lost.get_or_insert_with(Instant::now);
        let left = policy.limit().saturating_sub(lost.elapsed());
        let pause = error.retry_after().unwrap_or(self.pause).mul_f64(rand::random_range(0.75..1.25));
        if !error.is_worth_retrying() || pause >= left {
            return Err(error);
        }
        // The first reconnection is normal and not reported.
        if self.pause > FIRST_PAUSE {
            policy.notify(Retry { error: &error, attempt: 1, pause, left });
        }
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    async fn connect(&self) -> Result<Open> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let mut call = self.client.call(Method::GET, &path).accept(MEDIA_TYPE).query(&self.query);
        if let Some(id) = &self.last_id {
            call = call.header(HeaderName::from_static("last-event-id"), id);
        }
        let url = call.url_without_query();
        let request = self.client.request(&call)?;
        let begun = Instant::now();
        let sent = tokio::time::timeout(ORDINARY_TIME, self.client.transport().execute(request));
        let response = match sent.await {
            Ok(response) => {
                response.map_err(|error| self.client.unreachable(&call, &error, begun.elapsed()))?
            }
            Err(_) => return Err(ClientError::Timeout { url, after: ORDINARY_TIME }),
        };
        if response.status().is_success() && media_type(response.headers()) == MEDIA_TYPE {
            return Ok(Open { response, parser: Parser::default(), url });
        }
        let answer = tokio::time::timeout(ORDINARY_TIME, whole(response, &call));
        let answer =
            answer.await.map_err(|_| ClientError::Timeout { url: url.clone(), after: ORDINARY_TIME })?;
        let answer = answer.and_then(Response::accepted)?;
        answer.demand_media_type(MEDIA_TYPE)?;
        // Not reached: a successful response of that type was returned above.
        Err(InvalidResponse::CutOff.at(&url))
    }
}
