//! Long polls on HTTP/1 behave alike whether the broker's own code or hyper serves them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use brokkr_broker::serve::Server;
use brokkr_testkit::eventually;
use reqwest::StatusCode;
use reqwest::header::AUTHORIZATION;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Agent, Harness, YAML, polled, serve_changed};

/// The largest head of a request.
const HEAD: usize = 16 * 1024;
const SOON: Duration = Duration::from_secs(30);
const ALIVE: &str = "GET /livez HTTP/1.1\r\nhost: broker\r\n\r\n";
/// Ends a connection that is still open.
const LAST: &str = "GET /livez HTTP/1.1\r\nhost: broker\r\nconnection: close\r\n\r\n";

/// Starts a replica for each setting: with the own code, and with hyper.
async fn replicas(harness: &Harness) -> Result<[Server; 2]> {
    let start = async |in_hyper: bool| {
        serve_changed(&harness.database, |args| {
            (args.long_polls_in_hyper, args.rate_limits) = (in_hyper, false);
            args.drain = Duration::from_secs(10);
        })
        .await
    };
    Ok([start(false).await?, start(true).await?])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_waits_wakes_and_ends_with_the_replica_in_both_ways() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    harness.stack("web", json!({ "selectors": ["*"] })).await?;
    harness.submit("web", YAML).await?;
    for (round, replica) in replicas(&harness).await?.into_iter().enumerate() {
        let poll = |etag: &str, wait: u64| {
            let request = agent.poll_request_at(replica.address);
            polled(request.header("if-none-match", etag).header("prefer", format!("wait={wait}")))
        };
        let waits =
            async || eventually(SOON, "the poll to wait", async || replica.broker.index.waiting() == 1).await;
        let first = eventually(SOON, "the submission", async || {
            let first = polled(agent.poll_request_at(replica.address)).await?;
            anyhow::ensure!(first.envelope()?.stacks.len() == 1);
            anyhow::Ok(first)
        })
        .await?;
        let unchanged = poll(&first.etag, 1).await?;
        assert_eq!((unchanged.status, &unchanged.etag), (StatusCode::NOT_MODIFIED, &first.etag));
        let (woken, changed) = tokio::join!(poll(&first.etag, 60), async {
            waits().await?;
            harness.submit("web", &format!("{YAML}# {round}\n")).await
        });
        assert_eq!(woken.as_ref().ok().map(|woken| woken.status), Some(StatusCode::OK));
        assert_eq!(woken?.envelope()?.stacks[0].sequence_id, changed?.sequence_id);

        let current = polled(agent.poll_request_at(replica.address)).await?;
        let last = tokio::spawn(poll(&current.etag, 60));
        waits().await?;
        replica.stop().await;
        assert_eq!(last.await??.status, StatusCode::NOT_MODIFIED, "answered before the replica ends");
    }
    Ok(())
}

/// Bytes that a peer sends, and how the broker's responses to them are compared.
struct Case {
    name: &'static str,
    packets: Vec<String>,
    /// The number of responses, before the connection ends or is ended.
    responses: usize,
    has_body: bool,
    /// hyper closes a connection after the second of several requests in one packet; the own code does not.
    compares_end: bool,
}

impl Case {
    fn new(name: &'static str, packets: impl IntoIterator<Item = String>) -> Self {
        Self {
            name,
            packets: packets.into_iter().collect(),
            responses: 1,
            has_body: true,
            compares_end: true,
        }
    }
}

fn cases(agent: &Agent, etag: &str) -> Result<Vec<Case>> {
    let path = format!("/api/v1/{}", agent.path("target-state"));
    let (mut usual, mut credential) = ("host: broker\r\n".to_owned(), String::new());
    for (name, value) in agent.poll_request().build()?.headers() {
        let line = format!("{name}: {}\r\n", value.to_str()?);
        if name == AUTHORIZATION { credential = line } else { usual += &line }
    }
    let known = format!("if-none-match: {etag}\r\nprefer: wait=1\r\n");
    let request = |line: &str, more: &str| format!("{line}\r\n{usual}{credential}{more}\r\n");
    let line = format!("GET {path} HTTP/1.1");
    let poll = |more: &str| request(&line, more);
    let one = |name, text: String| Case::new(name, [text]);
    let headers = |count: usize| (0..count).map(|number| format!("x-{number}: a\r\n")).collect::<String>();
    let fill = |length: usize| {
        let used = poll("x: \r\n").len();
        poll(&format!("x: {}\r\n", "x".repeat(length - used)))
    };
    let mut all = vec![
        one("a poll", poll("")),
        one("a poll that waits", poll(&known)),
        one("without a credential", format!("{line}\r\n{usual}\r\n")),
        Case::new("byte by byte", poll("").chars().map(String::from)),
        Case::new(
            "a waiting poll in two packets",
            [poll(&known)[..40].to_owned(), poll(&known)[40..].to_owned()],
        ),
        one("connection: close", poll("connection: close\r\n")),
        one("connection: keep-alive", poll("connection: keep-alive\r\n")),
        one("HTTP/1.0", request(&format!("GET {path} HTTP/1.0"), "")),
        one("HTTP/1.0 keep-alive", request(&format!("GET {path} HTTP/1.0"), "connection: keep-alive\r\n")),
        Case { has_body: false, ..one("HEAD", request(&format!("HEAD {path} HTTP/1.1"), "")) },
        one("absolute form", request(&format!("GET http://broker{path} HTTP/1.1"), "")),
        one("percent-encoded", request(&line.replacen('-', "%2D", 1), "")),
        one("encoded slash", request(&line.replace("/target-state", "%2Ftarget-state"), "")),
        one("with a query", request(&format!("GET {path}?a=b HTTP/1.1"), "")),
        one("a further slash", request(&format!("GET {path}/ HTTP/1.1"), "")),
        one("dots", request(&format!("GET /api/v1/../v1/{} HTTP/1.1", agent.path("target-state")), "")),
        one("PUT", request(&format!("PUT {path} HTTP/1.1"), "content-length: 2\r\n") + "{}"),
        one("60 headers", poll(&headers(50))),
        one("80 headers", poll(&headers(70))),
        one("too many headers", poll(&headers(120))),
        one("a head at the limit", fill(HEAD)),
        one("a head beyond the limit", fill(HEAD + 1)),
        one("a head far beyond the limit", fill(HEAD * 4)),
        one("with a body", poll("content-length: 2\r\n") + "{}"),
        one("with a chunked body", poll("transfer-encoding: chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n"),
        one("two lengths", poll("content-length: 2\r\ncontent-length: 3\r\n") + "{}"),
        one("length and chunks", poll("content-length: 2\r\ntransfer-encoding: chunked\r\n") + "0\r\n\r\n"),
        one("line feeds", poll("").replace("\r\n", "\n")),
        one("one line feed", poll("a: b\n")),
        one("a leading empty line", format!("\r\n{}", poll(""))),
        one("two hosts", poll("host: other\r\n")),
        one("no host", poll("").replace("host: broker\r\n", "")),
        one("a folded header", poll("x: a\r\n b\r\n")),
        one("a space in a name", poll("x y: a\r\n")),
        one("a null", poll("x: \0\r\n")),
        one("expect", poll("expect: 100-continue\r\n")),
        one("upgrade", poll("connection: upgrade\r\nupgrade: websocket\r\n")),
        Case { responses: 0, ..one("a head that never ends", format!("{line}\r\nhost: broker\r\n")) },
    ];
    let pipelined = [
        ("two polls", vec![poll("") + &poll("")], 2),
        ("a poll that waits and another request", vec![poll(&known) + ALIVE], 2),
        ("another request and a poll that waits", vec![ALIVE.to_owned() + &poll(&known)], 2),
        ("a waiting poll and much more", vec![poll(&known), fill(HEAD * 4)], 2),
    ];
    all.extend(pipelined.map(|(name, packets, responses)| Case {
        responses,
        compares_end: false,
        ..Case::new(name, packets)
    }));
    Ok(all)
}

/// A connection that reads responses.
struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Peer {
    /// Returns the next response without what differs between any two responses; none at the end of the connection.
    async fn response(&mut self, has_body: bool) -> Result<Option<String>> {
        let volatile = ["date: ", "brokkr-position: ", "x-request-id: "];
        loop {
            if let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.input[..end]).to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length = if has_body { length.unwrap_or("0").parse()? } else { 0 };
                if self.input.len() >= end + 4 + length {
                    let response: Vec<u8> = self.input.drain(..end + 4 + length).collect();
                    let body = String::from_utf8_lossy(&response[end + 4..]).into_owned();
                    let mut lines: Vec<&str> = head.lines().skip(1).collect();
                    lines.retain(|line| !volatile.iter().any(|name| line.starts_with(name)));
                    lines.sort_unstable();
                    let status = head.lines().next().unwrap_or_default();
                    return Ok(Some(format!(
                        "{status}\n{}\n\n{}",
                        lines.join("\n"),
                        without_request_id(&body)
                    )));
                }
            }
            // A reset ends the connection too.
            let read = tokio::time::timeout(SOON, self.stream.read_buf(&mut self.input)).await;
            if !read.context("no response")?.is_ok_and(|length| length > 0) {
                return Ok(None);
            }
        }
    }
}

/// Problems contain the id of their request.
fn without_request_id(body: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(body) else { return body.to_owned() };
    if let Some(object) = value.as_object_mut() {
        object.remove("request_id");
    }
    value.to_string()
}

/// Returns the responses, and the response to a last request if the connection is still open.
async fn responses(address: SocketAddr, case: &Case) -> Result<Vec<Option<String>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut peer = Peer { stream, input: Vec::new() };
    for packet in &case.packets {
        // Fails if the broker has refused the request already.
        let _ = peer.stream.write_all(packet.as_bytes()).await;
    }
    let mut responses = Vec::new();
    for _ in 0..case.responses {
        let mut response = peer.response(case.has_body).await?;
        if !case.compares_end {
            response = response.map(|response| response.replace("connection: close\n", ""));
        }
        responses.push(response);
    }
    if case.compares_end {
        let sent = case.responses > 0 && peer.stream.write_all(LAST.as_bytes()).await.is_ok();
        responses.push(peer.response(true).await?.filter(|_| sent));
    }
    Ok(responses)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_alike_in_both_ways() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let etag = agent.poll().await?.etag;
    let [own, hyper] = replicas(&harness).await?;
    let compared = cases(&agent, &etag)?.into_iter().map(|case| {
        let (own, hyper) = (own.address, hyper.address);
        async move {
            let (own, hyper) = tokio::try_join!(responses(own, &case), responses(hyper, &case))
                .with_context(|| case.name)?;
            anyhow::Ok((case.name, own, hyper))
        }
    });
    let mut statuses = Vec::new();
    for compared in futures::future::join_all(compared).await {
        let (name, own, hyper) = compared?;
        assert_eq!(own, hyper, "{name}");
        let status = |response: &Option<String>| response.as_ref().map(|text| text[9..12].to_owned());
        statuses.push(format!("{name}: {:?}", own.iter().map(status).collect::<Vec<_>>()));
    }
    // Neither way refuses everything.
    assert!(statuses.iter().any(|line| line == r#"a poll: [Some("200"), Some("200")]"#), "{statuses:#?}");
    assert!(
        statuses.iter().any(|line| line == r#"a poll that waits: [Some("304"), Some("200")]"#),
        "{statuses:#?}"
    );
    Ok(())
}
