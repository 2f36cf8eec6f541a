//! Silent sockets are closed; active ones are kept.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use brokkr_testkit::Scratch;
use brokkr_testkit::tls::Authority;

use brokkr_api::tokens::Role;

use crate::harness::{Harness, serve_with, token};

#[tokio::test(flavor = "multi_thread")]
async fn tls_serves_both_versions_of_http_and_a_stalled_handshake_ends() -> Result<()> {
    let harness = Harness::open().await?;
    let (authority, scratch) = (Authority::new("test")?, Scratch::new("tls")?);
    let identity = authority.server(&scratch, "broker", &[])?;
    let server = serve_with(&harness.database, Some((identity.certificate, identity.key))).await?;
    let builder = || {
        let trusted = reqwest::Certificate::from_pem(authority.pem().as_bytes());
        trusted.map(|trusted| reqwest::Client::builder().tls_certs_only([trusted]).no_proxy())
    };
    let url = format!("https://{}/livez", server.address);
    assert_eq!(builder()?.build()?.get(&url).send().await?.version(), reqwest::Version::HTTP_2);
    assert_eq!(builder()?.http1_only().build()?.get(&url).send().await?.version(), reqwest::Version::HTTP_11);

    let started = Instant::now();
    let mut stream = TcpStream::connect(server.address).await?;
    stream.write_all(&[0x16, 3, 1]).await?;
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut Vec::new())).await?;
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_are_closed() -> Result<()> {
    let harness = Harness::open().await?;
    let address = harness.server.address;
    // A connection that is silent, one that sends only the beginning of the HTTP/2 preface, and one with
    // headers that never end.
    let openings: [&[u8]; 3] = [b"", b"P", b"GET /livez HTTP/1.1\r\nhost: a\r\nx: "];
    let closings = openings.map(|bytes| async move {
        let started = Instant::now();
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut answer = Vec::new();
        // Closed, or reset: either way it has ended.
        let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await?;
        anyhow::Ok(started.elapsed())
    });
    for took in futures::future::join_all(closings).await {
        let took = took?;
        assert!((Duration::from_secs(5)..Duration::from_secs(15)).contains(&took), "{took:?}");
    }
    Ok(())
}

/// A peer that sends its next request before the previous response is complete keeps its connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_fast_peer_keeps_its_connection() -> Result<()> {
    let harness = Harness::open().await?;
    let (address, token) = (harness.server.address, token(&harness.database, Role::Admin).await?);
    let quick = (0..8).map(|number| {
        let token = token.clone();
        tokio::task::spawn_blocking(move || {
            let mut peer = Peer::connect(address)?;
            for count in 0..200 {
                let put = format!(
                    "PUT /api/v1/stacks/web-{number} HTTP/1.1\r\nhost: broker\r\nauthorization: Bearer {token}\r\n\
                     content-length: 2\r\n\r\n{{}}"
                );
                peer.stream.write_all(put.as_bytes())?;
                let head = peer.answer()?;
                assert!(!head.contains("connection: close"), "at request {count}: {head}");
            }
            anyhow::Ok(())
        })
    });
    for ended in futures::future::join_all(quick).await {
        ended??;
    }
    Ok(())
}

/// Two requests in one packet are both answered; the broker may close the connection after the second
/// response.
#[tokio::test(flavor = "multi_thread")]
async fn requests_in_one_packet_are_all_answered() -> Result<()> {
    let harness = Harness::open().await?;
    let address = harness.server.address;
    let both = tokio::task::spawn_blocking(move || {
        let mut peer = Peer::connect(address)?;
        peer.stream.write_all(&[ALIVE, ALIVE].concat())?;
        anyhow::Ok([peer.answer()?, peer.answer()?])
    });
    for head in both.await?? {
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
    Ok(())
}

const ALIVE: &[u8] = b"GET /livez HTTP/1.1\r\nhost: broker\r\n\r\n";

/// A minimal client.
struct Peer {
    stream: std::net::TcpStream,
    read: Vec<u8>,
}

impl Peer {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Returns the head of the next response, in lower case. Its body is discarded.
    fn answer(&mut self) -> Result<String> {
        let mut part = [0; 4096];
        loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let whole = end + 4 + length.unwrap_or("0").parse::<usize>()?;
                if self.read.len() >= whole {
                    self.read.drain(..whole);
                    return Ok(head);
                }
            }
            let length = self.stream.read(&mut part)?;
            anyhow::ensure!(length > 0, "the connection was closed");
            self.read.extend_from_slice(&part[..length]);
        }
    }
}
