//! Writes the response to a poll without hyper: a head, and a body of known length.

use std::io::{self, Write as _};

use axum::response::Response;
use http::StatusCode;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http_body_util::BodyExt as _;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Up to this size, head and body are written together.
const SINGLE_WRITE: usize = 16 * 1024;

/// Writes the response; with `last`, it announces the end of the connection.
pub async fn write<S>(stream: &mut S, response: Response, last: bool) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let mut out = Vec::with_capacity(512 + body.len().min(SINGLE_WRITE));
    let status = parts.status;
    write!(out, "HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default())?;
    for (name, value) in &parts.headers {
        if ![CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(name) {
            line(&mut out, name.as_str(), value.as_bytes());
        }
    }
    if !parts.headers.contains_key(DATE) {
        // Agents use it to correct their clock.
        let now = DateTimePrinter::new().timestamp_to_rfc9110_string(&jiff::Timestamp::now());
        line(&mut out, "date", now.map_err(io::Error::other)?.as_bytes());
    }
    if last {
        line(&mut out, "connection", b"close");
    }
    if status != StatusCode::NOT_MODIFIED && status != StatusCode::NO_CONTENT {
        write!(out, "content-length: {}\r\n", body.len())?;
    }
    out.extend_from_slice(b"\r\n");
    if body.len() <= SINGLE_WRITE {
        out.extend_from_slice(&body);
        stream.write_all(&out).await?;
    } else {
        stream.write_all(&out).await?;
        stream.write_all(&body).await?;
    }
    stream.flush().await
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::response::IntoResponse as _;

    use super::*;

    async fn written(response: Response, last: bool) -> String {
        let mut out = io::Cursor::new(Vec::new());
        write(&mut out, response, last).await.expect("written to memory");
        let text = String::from_utf8(out.into_inner()).expect("UTF-8");
        text.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("|")
    }

    #[tokio::test]
    async fn a_response_is_framed_by_its_length() {
        let response = ([("etag", "\"a\"")], Body::from("{}")).into_response();
        assert_eq!(written(response, false).await, "HTTP/1.1 200 OK|etag: \"a\"|content-length: 2||{}");
        let response = StatusCode::NOT_MODIFIED.into_response();
        assert_eq!(written(response, true).await, "HTTP/1.1 304 Not Modified|connection: close|");
        let large = "x".repeat(SINGLE_WRITE + 1);
        let response = Body::from(large.clone()).into_response();
        let expected = format!("HTTP/1.1 200 OK|content-length: {}||{large}", large.len());
        assert_eq!(written(response, false).await, expected);
    }
}
