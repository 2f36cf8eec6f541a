//! Request bodies: a limit per route, a budget for all of them, and a deadline.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brokkr_api::ErrorCode;
use brokkr_api::tokens::Role;
use brokkr_broker::access::Permission;
use brokkr_broker::router;
use brokkr_testkit::eventually;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::fleet::Fleet;
use crate::harness::{Caller, Harness, Key, YAML, bound, refused, register, serve_changed, token};
use crate::hostile::{Bystander, Socket, tls};

const SOON: Duration = Duration::from_secs(30);
/// Routes that answer without reading a body.
const WITHOUT_BODY: [&str; 1] = ["POST /api/v1/webhooks/{webhook}/test"];
const REGISTER: &str = "POST /api/v1/agents/register";

/// A request of which the body is sent by hand.
struct RawRequest(TcpStream);

impl RawRequest {
    /// Sends the head and the beginning of the body.
    async fn begin(
        address: SocketAddr,
        request: &str,
        credential: Option<&str>,
        length: usize,
        body: &[u8],
    ) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        let credential =
            credential.map(|text| format!("authorization: Bearer {text}\r\n")).unwrap_or_default();
        let head =
            format!("{request} HTTP/1.1\r\nhost: broker\r\n{credential}content-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        // The broker may have refused it already.
        let _ = stream.write_all(body).await;
        Ok(Self(stream))
    }

    /// Returns the head of the response, in lower case; none if there is none yet.
    async fn answer(&mut self, within: Duration) -> Result<Option<String>> {
        let mut read = Vec::new();
        let answered = async {
            while !read.windows(4).any(|four| four == b"\r\n\r\n") {
                let mut part = [0; 1024];
                let length = self.0.read(&mut part).await?;
                anyhow::ensure!(length > 0, "the connection was closed without a response");
                read.extend_from_slice(&part[..length]);
            }
            Ok(())
        };
        match tokio::time::timeout(within, answered).await {
            Ok(answered) => answered?,
            Err(_) => return Ok(None),
        }
        Ok(Some(String::from_utf8_lossy(&read).to_lowercase()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_a_body_above_its_limit_before_it_is_sent() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let admin = token(&harness.database, Role::Admin).await?;
    let (mut checked, nil) = (0, Uuid::nil().to_string());
    let address = harness.server.address;
    for route in router::table().iter().filter(|route| !route.name.starts_with("GET ")) {
        let path = route.name.replace("{agent}", &agent.id.to_string());
        let path = path.split('/').map(|part| if part.starts_with('{') { &*nil } else { part });
        let request = path.collect::<Vec<_>>().join("/");
        let credential = match route.permission {
            Permission::Public => None,
            Permission::Token(_) => Some(admin.clone()),
            _ => {
                // Its digest of the body does not matter, because the body never arrives.
                let (method, path) = request.split_once(' ').context("METHOD /path")?;
                let signed = agent.caller().request(method.parse()?, path).build()?;
                Some(agent.signer().write_assertion(bound(&signed))?)
            }
        };
        let credential = credential.as_deref();
        let mut large = RawRequest::begin(address, &request, credential, route.body.0 + 1, b"").await?;
        let answer = large.answer(SOON).await?.with_context(|| format!("{}: no response", route.name))?;
        if WITHOUT_BODY.contains(&route.name) {
            assert!(answer.starts_with("http/1.1 404"), "it was read: {answer}");
            continue;
        }
        assert!(answer.starts_with("http/1.1 413"), "{}: {answer}", route.name);
        let mut allowed = RawRequest::begin(address, &request, credential, route.body.0, b"").await?;
        // It is waited for: the broker has not refused it by its length.
        let answer = allowed.answer(Duration::from_millis(100)).await?;
        assert_eq!(answer, None, "{}", route.name);
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
    Ok(())
}

/// Waits until some of the requests are answered, and checks that they were refused for a moment.
async fn one_is_refused(requests: &mut [RawRequest]) -> Result<()> {
    let mut answers = Vec::new();
    eventually(SOON, "a body to be refused", async || {
        for request in &mut *requests {
            answers.extend(request.answer(Duration::from_millis(10)).await.ok().flatten());
        }
        !answers.is_empty()
    })
    .await?;
    for answer in answers {
        assert!(answer.starts_with("http/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_share_a_budget_and_callers_without_a_credential_have_a_small_part_of_it() -> Result<()> {
    const BUDGET: usize = 1024 * 1024;
    let harness = Harness::open().await?;
    harness.stack("web", json!({})).await?;
    let server = serve_changed(&harness.database, |args| args.max_body_bytes = 1024 * 1024).await?;
    let secret = token(&harness.database, Role::Admin).await?;
    let admin = Caller::new(server.address, Some(secret.clone()));
    let anyone = Caller::new(server.address, None);
    let used = || server.broker.bodies.used();
    let submit = || admin.request(reqwest::Method::POST, "stacks/web/deployment-objects").body(YAML).send();
    let join = async || register(&anyone, "brj_wrong", &Key::generate()?).await;

    // Callers with a credential use up their share.
    let mut held = Vec::new();
    for _ in 0..8 {
        let request = "POST /api/v1/stacks/web/deployment-objects";
        let body = vec![b'#'; 300 * 1024];
        held.push(RawRequest::begin(server.address, request, Some(&secret), 400 * 1024, &body).await?);
    }
    one_is_refused(&mut held).await?;
    let (authenticated, unauthenticated) = used();
    assert!(authenticated >= 300 * 1024 && authenticated + unauthenticated <= BUDGET, "{authenticated}");
    assert_eq!(refused(join().await?).await?, ErrorCode::BRK1003, "agents can join");
    drop(held);
    eventually(SOON, "the bodies to be released", async || used() == (0, 0)).await?;
    assert_eq!(submit().await?.status(), 201);

    // Callers without a credential use up theirs.
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(RawRequest::begin(server.address, REGISTER, None, 4000, &[b' '; 3900]).await?);
    }
    one_is_refused(&mut held).await?;
    assert!(used().1 <= BUDGET / 16, "{:?}", used());
    assert_eq!(submit().await?.status(), 201, "others are served");
    drop(held);
    eventually(SOON, "the bodies to be released", async || used() == (0, 0)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_drips_before_authentication_counts_as_a_failure_of_its_address() -> Result<()> {
    let harness = Harness::open().await?;
    let agent = harness.agent("shop-1", json!({})).await?;
    let token = harness.join_token("shop-2", json!({})).await?;
    let address = harness.server.address;
    let dripping = (0..300).map(|_| async move {
        let mut request = RawRequest::begin(address, REGISTER, None, 1000, b"{").await?;
        request.answer(SOON).await?.context("it is never answered")
    });
    for answer in futures::future::try_join_all(dripping).await? {
        assert!(answer.starts_with("http/1.1 408") || answer.starts_with("http/1.1 429"), "{answer}");
    }
    let joined = register(&harness.without_credential(), &token.token, &Key::generate()?).await?;
    assert_eq!(refused(joined).await?, ErrorCode::BRK1006);
    assert_eq!(agent.poll().await?.status, 200, "agents behind the address are served");
    Ok(())
}

/// Sends a registration with a body of 8 MiB, 16 KiB at a time, until the broker closes the connection or the time is
/// over. Every second one does not announce its length.
async fn register_slowly(mut socket: Box<dyn Socket>, number: u64) -> Result<()> {
    tokio::time::sleep(Duration::from_millis(number * 10)).await;
    let length =
        if number.is_multiple_of(2) { "content-length: 8388608" } else { "transfer-encoding: chunked" };
    let head = format!("POST /api/v1/agents/register HTTP/1.1\r\nhost: a\r\n{length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    let spaces = " ".repeat(16 * 1024);
    let part = if number.is_multiple_of(2) { spaces } else { format!("4000\r\n{spaces}\r\n") };
    for _ in 0..512 {
        socket.write_all(part.as_bytes()).await?;
        socket.flush().await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn large_slow_bodies_before_authentication_cost_neither_memory_nor_time_of_others() -> Result<()> {
    const CONNECTIONS: u64 = 200;
    const WINDOW: Duration = Duration::from_secs(3);
    // On a machine with few cores, smaller differences come from the scheduler.
    const NOISE: Duration = Duration::from_millis(50);
    let fleet = Fleet::start(1, &[]).await?;
    let memory = fleet.resident()?;
    // What the broker itself costs is there in each round; other work of this machine only in some, so the least counts.
    let (mut before, mut during, mut most) = (Duration::MAX, Duration::MAX, 0);
    for _ in 0..3 {
        let bystander = Bystander::watch(&fleet)?;
        tokio::time::sleep(WINDOW).await;
        before = before.min(bystander.slowest().await?);

        // Handshakes are not measured.
        let sockets = (0..CONNECTIONS).map(|_| tls(&fleet, b"http/1.1"));
        let sockets = futures::future::try_join_all(sockets).await?;
        let bystander = Bystander::watch(&fleet)?;
        let sending: Vec<_> = (0..)
            .zip(sockets)
            .map(|(number, socket)| tokio::spawn(register_slowly(socket, number)))
            .collect();
        let until = Instant::now() + WINDOW;
        while Instant::now() < until {
            most = most.max(fleet.resident()?);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        during = during.min(bystander.slowest().await?);
        sending.iter().for_each(tokio::task::JoinHandle::abort);
    }
    let refused = fleet.figure("brokkr_request_bodies_refused_total{reason=\"too_large\"}").await?;
    assert!(refused > 300.0, "the attack reached the broker only {refused} times");
    assert!(during < 2 * before + NOISE, "others waited {during:?}, {before:?} without the attack");
    let grown = most.saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} bytes more");
    Ok(())
}
