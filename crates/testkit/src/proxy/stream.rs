//! Watches, line by line.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt as _};
use serde_json::Value;

use super::rules::{Action, RuleState};

type Lines = BoxStream<'static, io::Result<Bytes>>;

/// The body of a watch, as the server sends it, cut into lines.
fn lines(response: reqwest::Response) -> Lines {
    let state = (response, BytesMut::new());
    futures::stream::unfold(state, |(mut response, mut waiting)| async move {
        loop {
            if let Some(end) = waiting.iter().position(|&byte| byte == b'\n') {
                let line = waiting.split_to(end + 1).freeze();
                return Some((Ok(line), (response, waiting)));
            }
            match response.chunk().await {
                Ok(Some(chunk)) => waiting.extend_from_slice(&chunk),
                Ok(None) if waiting.is_empty() => return None,
                Ok(None) => return Some((Ok(waiting.split().freeze()), (response, waiting))),
                Err(error) => return Some((Err(io::Error::other(error)), (response, waiting))),
            }
        }
    })
    .boxed()
}

/// What the client gets of a watch under a rule, if there is one.
pub(super) fn watch(response: reqwest::Response, rule: Option<Arc<RuleState>>) -> Lines {
    let Some(rule) = rule else { return lines(response) };
    match rule.action.clone() {
        Action::Freeze => {
            // The server's side stays open, as it would if only the way back were dead.
            let frozen = async move {
                rule.removed.cancelled().await;
                drop(response);
                Err(io::Error::from(io::ErrorKind::ConnectionReset))
            };
            futures::stream::once(frozen).boxed()
        }
        Action::Swallow(is_lost) => {
            let keep = move |line: &io::Result<Bytes>| {
                let Ok(bytes) = line else { return true };
                let event: Value = serde_json::from_slice(bytes).unwrap_or_default();
                let lost = !rule.removed.is_cancelled() && is_lost(&event["object"]);
                if lost {
                    rule.reach();
                }
                !lost
            };
            lines(response).filter(move |line| futures::future::ready(keep(line))).boxed()
        }
        Action::Line(line) => futures::stream::once(async move { Ok(line) }).boxed(),
        _ => lines(response),
    }
}
