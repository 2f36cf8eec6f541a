//! Watches, line by line.

use std::io;

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt as _};
use serde_json::Value;

use super::faults::{Action, ActiveRule};

type Lines = BoxStream<'static, io::Result<Bytes>>;

/// Splits the body of a watch into lines.
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

/// Returns the lines that the client gets of a watch, changed by the rule if there is one.
pub(super) fn watch(response: reqwest::Response, rule: Option<ActiveRule>) -> Lines {
    let Some(rule) = rule else { return lines(response) };
    match rule.fault.clone() {
        Action::Freeze => {
            // The server's side stays open, as if only the way back had failed.
            let frozen = async move {
                rule.removed().await;
                drop(response);
                Err(io::Error::from(io::ErrorKind::ConnectionReset))
            };
            futures::stream::once(frozen).boxed()
        }
        Action::DropEvents(is_dropped) => {
            let keep = move |line: &io::Result<Bytes>| {
                let Ok(bytes) = line else { return true };
                let event: Value = serde_json::from_slice(bytes).unwrap_or_default();
                let dropped = !rule.is_removed() && is_dropped(&event["object"]);
                if dropped {
                    rule.hit();
                }
                !dropped
            };
            lines(response).filter(move |line| futures::future::ready(keep(line))).boxed()
        }
        Action::WatchLine(line) => futures::stream::once(async move { Ok(line) }).boxed(),
        _ => lines(response),
    }
}
