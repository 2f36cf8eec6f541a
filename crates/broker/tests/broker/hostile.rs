//! Hostile input against a real process: it is refused within limits, other clients are served, and memory is
//! bounded.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::tokens::Role;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::fleet::Fleet;
use crate::harness::token;

/// The largest growth of memory: the broker parses two manifests at a time, each of which may reach every
/// limit, and the allocator keeps their memory for a while.
const MEMORY: usize = 200 * 1024 * 1024;

/// A client at another address that sends requests continuously and measures their duration.
pub struct Bystander {
    done: Arc<AtomicBool>,
    asking: tokio::task::JoinHandle<Result<Vec<Duration>>>,
}

impl Bystander {
    pub fn watch(fleet: &Fleet) -> Result<Self> {
        let client = fleet.client_builder()?.local_address(IpAddr::from([127, 0, 0, 2])).build()?;
        let (url, done) = (fleet.url("/livez"), Arc::new(AtomicBool::new(false)));
        let asking = tokio::spawn(ask(client, url, Arc::clone(&done)));
        Ok(Self { done, asking })
    }

    /// Stops the client and returns the 99th percentile of the durations.
    pub async fn slowest(self) -> Result<Duration> {
        self.done.store(true, Ordering::Relaxed);
        let mut took = self.asking.await??;
        took.sort_unstable();
        took.get(took.len() * 99 / 100).copied().context("no request was sent")
    }
}

async fn ask(client: Client, url: String, done: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let started = Instant::now();
        client.get(&url).timeout(Duration::from_secs(10)).send().await?.error_for_status()?;
        took.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(took)
}

/// Returns how long requests take without an attack, on this machine.
async fn calm(fleet: &Fleet) -> Result<Duration> {
    let bystander = Bystander::watch(fleet)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    bystander.slowest().await
}

fn assert_undisturbed(before: Duration, during: Duration) {
    let most = (before * 20).max(Duration::from_secs(2));
    assert!(during < most, "others waited {during:?}, {before:?} before");
}

pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

pub async fn tls(fleet: &Fleet, protocol: &[u8]) -> Result<Box<dyn Socket>> {
    let mut roots = rustls::RootCertStore::empty();
    let pem = fleet.authority.pem();
    roots.add(rustls::pki_types::pem::PemObject::from_pem_slice(pem.as_bytes())?)?;
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(fleet.port.address()).await?;
    let name = rustls::pki_types::ServerName::try_from("localhost")?;
    Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}

/// Sends the opening, then one byte a second; returns when the broker closes the connection.
async fn dripped(mut socket: Box<dyn Socket>, opening: Vec<u8>, drip: Option<u8>) -> Result<Duration> {
    let started = Instant::now();
    socket.write_all(&opening).await?;
    socket.flush().await?;
    let mut sink = [0; 4096];
    while started.elapsed() < Duration::from_secs(120) {
        let read = tokio::time::timeout(Duration::from_secs(1), socket.read(&mut sink)).await;
        match read {
            Ok(Ok(0) | Err(_)) => return Ok(started.elapsed()),
            Ok(Ok(_)) => {}
            Err(_) => {
                if let Some(byte) = drip
                    && (socket.write_all(&[byte]).await.is_err() || socket.flush().await.is_err())
                {
                    return Ok(started.elapsed());
                }
            }
        }
    }
    anyhow::bail!("still open after {:?}", started.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_and_slow_connections_are_closed_without_affecting_others() -> Result<()> {
    let fleet = Fleet::start(1, &[]).await?;
    let before = calm(&fleet).await?;
    let memory = fleet.resident()?;
    let bystander = Bystander::watch(&fleet)?;
    let plain =
        async || anyhow::Ok(Box::new(TcpStream::connect(fleet.port.address()).await?) as Box<dyn Socket>);
    let head = b"GET /livez HTTP/1.1\r\nhost: a\r\nx: ".to_vec();
    let body = b"POST /api/v1/agents/register HTTP/1.1\r\nhost: a\r\ncontent-length: 4000\r\n\r\n{".to_vec();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let (short, long) = (Duration::from_secs(25), Duration::from_secs(60));
    let mut attempts = Vec::new();
    for _ in 0..20 {
        attempts.push(("silent", plain().await?, Vec::new(), None, short));
        attempts.push(("half a handshake", plain().await?, vec![0x16, 3, 1], Some(0), short));
        attempts.push(("silent in TLS", tls(&fleet, b"http/1.1").await?, Vec::new(), None, short));
        attempts.push(("P and no more", tls(&fleet, b"http/1.1").await?, b"P".to_vec(), None, short));
        attempts.push(("P and no more, HTTP/2", tls(&fleet, b"h2").await?, b"P".to_vec(), None, short));
        attempts.push((
            "a head that drips",
            tls(&fleet, b"http/1.1").await?,
            head.clone(),
            Some(b'a'),
            short,
        ));
        attempts.push(("HTTP/2 without a request", tls(&fleet, b"h2").await?, preface.clone(), None, short));
        attempts.push(("a body that drips", tls(&fleet, b"http/1.1").await?, body.clone(), Some(b' '), long));
    }
    let attempts = attempts.into_iter().map(|(what, socket, opening, drip, most)| async move {
        let took = dripped(socket, opening, drip).await.with_context(|| what.to_owned())?;
        anyhow::ensure!(took < most, "{what}: closed only after {took:?}");
        Ok(())
    });
    futures::future::try_join_all(attempts).await?;
    assert_undisturbed(before, bystander.slowest().await?);
    let grown = fleet.resident()?.saturating_sub(memory);
    assert!(grown < MEMORY / 2, "{grown} bytes more");
    let slow = fleet.figure("brokkr_request_bodies_refused_total{reason=\"slow\"}").await?;
    assert!(slow >= 20.0, "{slow}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_disconnected() -> Result<()> {
    let fleet = Fleet::start(1, &[]).await?;
    let mut socket = tls(&fleet, b"http/1.1").await?;
    let started = Instant::now();
    let request = b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: a\r\n\r\n";
    loop {
        // Responses pile up until the broker cannot write; then it disconnects.
        match tokio::time::timeout(Duration::from_secs(60), socket.write_all(request)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => break,
            Err(_) => anyhow::bail!("still connected after {:?}", started.elapsed()),
        }
        anyhow::ensure!(started.elapsed() < Duration::from_secs(90), "requests are accepted forever");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_from_one_address_do_not_block_others() -> Result<()> {
    let fleet = Fleet::start(1, &["--max-connections-per-address", "2000"]).await?;
    let before = calm(&fleet).await?;
    let memory = fleet.resident()?;
    let bystander = Bystander::watch(&fleet)?;
    let mut sockets = Vec::with_capacity(10_000);
    let address = fleet.port.address();
    for _ in 0..10_000 {
        sockets.push(TcpStream::connect(&address).await?);
    }
    let held = fleet.figure("brokkr_connections").await?;
    assert!(held <= 2001.0, "{held} are open");
    let grown = fleet.resident()?.saturating_sub(memory);
    assert!(grown < MEMORY / 2, "{grown} bytes more");
    // Connections beyond the limit were closed at once; the others are idle and time out.
    brokkr_testkit::eventually(Duration::from_secs(30), "idle connections to be closed", async || {
        fleet.figure("brokkr_connections").await.is_ok_and(|held| held <= 1.0)
    })
    .await?;
    assert_undisturbed(before, bystander.slowest().await?);
    Ok(())
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}1{}", open.repeat(depth), close.repeat(depth))
}

fn documents() -> Vec<(&'static str, String)> {
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    let laughs = (0..20).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, level| {
        let alias = format!("*a{level},").repeat(9);
        format!("{text}a{next}: &a{next} [{alias}]\n", next = level + 1)
    });
    let quadratic =
        format!("{config}data:\n  a: &a {}\n  b: [{}]\n", "x".repeat(75_000), "*a,".repeat(25_000));
    let many_labels: String = (0..100_000).map(|count| format!("    k{count}: v\n")).collect();
    vec![
        ("laughs", format!("{config}data:\n{}", laughs.replace("a0:", "  a0:").replace("\na", "\n  a"))),
        ("a quadratic bomb", quadratic),
        ("100,000 documents", format!("---\n{config}").repeat(100_000)),
        ("deep lists", format!("{config}data: {}\n", nested("[", "]", 100_000))),
        ("deep maps", format!("{config}data: {}\n", nested("{a: ", "}", 100_000))),
        (
            "many labels",
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: b\n  labels:\n{many_labels}"
            ),
        ),
        (
            "a huge annotation",
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: b\n  annotations:\n    a: {}\n",
                "x".repeat(2_000_000)
            ),
        ),
        ("too large", "#".repeat(9 * 1024 * 1024)),
    ]
}

fn requests() -> Vec<(&'static str, String, Value)> {
    let labels: Value =
        (0..10_000).map(|count| (format!("k{count}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let selector = (0..20_000).map(|count| format!("k{count} in (a,b)")).collect::<Vec<_>>().join(",");
    let selectors: Vec<String> = (0..50_000).map(|count| format!("k=v{count}")).collect();
    vec![
        ("many labels of an agent", "agents/shop-1".to_owned(), json!({ "labels": labels })),
        ("a huge label", "agents/shop-1".to_owned(), json!({ "labels": { "a": "x".repeat(1_000_000) } })),
        (
            "a huge annotation",
            "agents/shop-1".to_owned(),
            json!({ "annotations": { "a": "x".repeat(5_000_000) } }),
        ),
        ("a huge selector", "stacks/web/targets".to_owned(), json!({ "selectors": [selector] })),
        ("many selectors", "stacks/web/targets".to_owned(), json!({ "selectors": selectors })),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn alias_bombs_and_huge_requests_are_refused_without_affecting_others() -> Result<()> {
    let fleet = Fleet::start(1, &[]).await?;
    let token = token(&fleet.database, Role::Admin).await?;
    let client = fleet.client(true)?;
    let send = async |request: reqwest::RequestBuilder| -> Result<reqwest::StatusCode> {
        let request = request.bearer_auth(&token).timeout(Duration::from_secs(180));
        Ok(request.send().await?.status())
    };
    let made = send(client.put(fleet.url("/api/v1/stacks/web")).json(&json!({}))).await?;
    assert!(made.is_success(), "{made}");
    let before = calm(&fleet).await?;
    let memory = fleet.resident()?;
    let bystander = Bystander::watch(&fleet)?;
    for (what, text) in documents() {
        let url = fleet.url("/api/v1/stacks/web/deployment-objects");
        let answers: Vec<_> = (0..6).map(|_| send(client.post(&url).body(text.clone()))).collect();
        for status in futures::future::try_join_all(answers).await.with_context(|| what.to_owned())? {
            assert!(status.is_client_error(), "{what}: {status}");
        }
    }
    for (what, path, body) in requests() {
        let method = if path.starts_with("agents") { reqwest::Method::PATCH } else { reqwest::Method::PUT };
        let status = send(client.request(method, fleet.url(&format!("/api/v1/{path}"))).json(&body)).await;
        let status = status.with_context(|| what.to_owned())?;
        assert!(status.is_client_error(), "{what}: {status}");
    }
    for deep in [nested("[", "]", 1_000_000), nested("{\"labels\":", "}", 100_000)] {
        let status = send(client.put(fleet.url("/api/v1/stacks/web")).body(deep)).await?;
        assert!(status.is_client_error(), "deep JSON: {status}");
    }
    assert_undisturbed(before, bystander.slowest().await?);
    let grown = fleet.resident()?.saturating_sub(memory);
    assert!(grown < MEMORY, "{grown} bytes more");
    Ok(())
}
