//! Silent sockets are closed; active ones are kept, within limits. The certificate follows its files.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use brokkr_testkit::tls::Authority;
use brokkr_testkit::{Scratch, eventually};

use brokkr_api::tokens::Role;

use crate::fleet::Fleet;
use crate::harness::{Harness, serve_changed, serve_with, token};

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

/// Connections on which nobody authenticates cannot take all of them: beyond a share, each response closes its
/// connection.
#[tokio::test(flavor = "multi_thread")]
async fn health_checks_on_many_connections_leave_connections_for_others() -> Result<()> {
    let harness = Harness::open().await?;
    let server = serve_changed(&harness.database, |args| args.max_connections = 64).await?;
    let (address, token) = (server.address, token(&harness.database, Role::Admin).await?);
    let (kept, closed, _others) = tokio::task::spawn_blocking(move || {
        let closes = |peer: &mut Peer, request: &[u8]| -> Result<bool> {
            peer.stream.write_all(request)?;
            let head = peer.answer()?;
            anyhow::ensure!(head.starts_with("http/1.1 200"), "{head}");
            Ok(head.contains("connection: close"))
        };
        let known =
            format!("GET /api/v1/stacks HTTP/1.1\r\nhost: broker\r\nauthorization: Bearer {token}\r\n\r\n");
        let (mut kept, mut closed) = (Vec::new(), 0);
        for _ in 0..30 {
            let mut peer = Peer::connect(address)?;
            if closes(&mut peer, ALIVE)? {
                closed += 1;
            } else {
                kept.push(peer);
            }
        }
        let mut others = Vec::new();
        for _ in 0..30 {
            let mut peer = Peer::connect(address)?;
            anyhow::ensure!(!closes(&mut peer, known.as_bytes())?, "authenticated callers stay");
            others.push(peer);
        }
        // A connection that authenticates gives its place to another one.
        anyhow::ensure!(!closes(&mut kept[0], known.as_bytes())?);
        let mut last = Peer::connect(address)?;
        anyhow::ensure!(!closes(&mut last, ALIVE)?);
        kept.push(last);
        for peer in kept.iter_mut().chain(&mut others) {
            anyhow::ensure!(!closes(peer, ALIVE)?, "it stays");
        }
        anyhow::Ok((kept, closed, others))
    })
    .await??;
    assert_eq!((kept.len(), closed), (4 + 1, 26), "one of them has authenticated");
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build()?;
    for _ in 0..10 {
        let answer = http2.get(format!("http://{address}/livez")).send().await?;
        assert_eq!(answer.status(), 200, "health checks are answered, on whatever connection");
    }
    Ok(())
}

/// Clients do not get the files that the database and the health checks need.
#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_use_all_open_files() -> Result<()> {
    let fleet = Fleet::start_with_files(400, &[]).await?;
    let address = fleet.port.address();
    let mut sockets = Vec::new();
    for _ in 0..600 {
        sockets.push(TcpStream::connect(&address).await?);
    }
    // 256 are reserved, and 20 for the database.
    eventually(Duration::from_secs(30), "the connections to be accepted", async || {
        let connections = fleet.figure("brokkr_connections").await?;
        anyhow::ensure!(connections == 124.0, "{connections}");
        anyhow::Ok(())
    })
    .await?;
    assert!(fleet.figure("brokkr_process_open_files").await? < 350.0);
    assert_eq!(fleet.asked("/livez").await?.0, 200);
    Ok(())
}

/// A client that leaks connections to the admin listener does not keep the orchestrator from checking the health.
#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_all_connections_of_the_admin_listener() -> Result<()> {
    let fleet = Fleet::start(1, &[]).await?;
    let address: SocketAddr = fleet.admin.address().parse()?;
    let mut leaked = Vec::new();
    for _ in 0..200 {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, 3], 0)))?;
        let mut stream = socket.connect(address).await?;
        // A connection beyond the limit may be closed already.
        let _ = stream.write_all(ALIVE).await;
        leaked.push(stream);
    }
    let mut answered = 0;
    for stream in &mut leaked {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut [0; 16])).await?;
        answered += usize::from(read.is_ok_and(|length| length > 0));
    }
    assert_eq!(answered, 16, "the others are closed");
    assert_eq!(fleet.asked("/livez").await?.0, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_used_without_a_restart_and_a_broken_one_is_not() -> Result<()> {
    const SOON: Duration = Duration::from_secs(30);
    let fleet = Fleet::start(1, &[]).await?;
    let url = fleet.url("/livez");
    let before = fleet.client(false)?;
    // The response is read to its end, so that its connection can be used again.
    before.get(&url).send().await?.error_for_status()?.bytes().await?;
    std::fs::write(&fleet.identity.certificate, "nonsense")?;
    fleet.process.wait_for_log("failed to reload the certificate", SOON).await?;
    assert_eq!(fleet.client(true)?.get(&url).send().await?.status(), 200, "the previous one is still used");

    let (other, scratch) = (Authority::new("other")?, Scratch::new("renewed")?);
    let renewed = other.server(&scratch, "renewed", &[])?;
    std::fs::copy(&renewed.key, &fleet.identity.key)?;
    std::fs::copy(&renewed.certificate, &fleet.identity.certificate)?;
    let trusted = reqwest::Certificate::from_pem(other.pem().as_bytes())?;
    eventually(SOON, "the renewed certificate", async || {
        let client = reqwest::Client::builder().tls_certs_only([trusted.clone()]).no_proxy().build()?;
        client.get(&url).send().await?.error_for_status()
    })
    .await?;
    let new = fleet.client(false)?.get(&url).send().await;
    assert!(new.is_err(), "new connections use the renewed certificate");
    // It trusts only the earlier certificate, so it can only use the connection that it has.
    assert_eq!(before.get(&url).send().await?.status(), 200, "open connections stay");
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
