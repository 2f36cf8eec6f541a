//! A forward proxy (HTTP CONNECT), as companies have it between their clusters and the internet.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The largest request head.
const LONGEST_REQUEST: usize = 8 * 1024;

/// The clients that the proxy accepts.
#[derive(Clone, Debug)]
pub enum ProxyAccess {
    Open,
    /// Clients with these credentials, `user:password`.
    Password(String),
    /// No client: 403.
    Closed,
}

/// A running proxy. Dropping it closes its connections.
#[derive(Debug)]
pub struct ForwardProxy {
    port: u16,
    targets: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl ForwardProxy {
    pub async fn start(access: ProxyAccess) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, targets) = (listener.local_addr()?.port(), Arc::new(Mutex::default()));
        let serving = tokio::spawn(serve(listener, access, targets.clone()));
        Ok(Self { port, targets, serving })
    }

    /// Returns `localhost:PORT`: a name, so that a no-proxy list of addresses does not match it.
    pub fn address(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Returns the requested targets, as `host:port`, whether or not they were allowed.
    pub fn targets(&self) -> Vec<String> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, access: ProxyAccess, targets: Arc<Mutex<Vec<String>>>) {
    let mut tunnels = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (access, targets) = (access.clone(), targets.clone());
        // Errors are visible to both ends of a connection.
        tunnels.spawn(async move { tunnel(client, &access, &targets).await.ok() });
        while tunnels.try_join_next().is_some() {}
    }
}

async fn tunnel(mut client: TcpStream, access: &ProxyAccess, targets: &Mutex<Vec<String>>) -> Result<()> {
    let head = head(&mut client).await?;
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).context("CONNECT")?;
    targets.lock().unwrap_or_else(PoisonError::into_inner).push(target.to_owned());
    let refusal = match access {
        ProxyAccess::Open => None,
        ProxyAccess::Password(wanted) if has_credentials(&head, wanted) => None,
        ProxyAccess::Password(_) => {
            Some("407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"proxy\"")
        }
        ProxyAccess::Closed => Some("403 Forbidden"),
    };
    if let Some(refusal) = refusal {
        let answer = format!("HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n");
        client.write_all(answer.as_bytes()).await?;
        return Ok(());
    }
    let mut server = TcpStream::connect(target).await?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Reads up to the empty line; a client sends nothing more before the response.
async fn head(client: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        ensure!(bytes.len() < LONGEST_REQUEST, "the request is too long");
        ensure!(client.read_buf(&mut bytes).await? > 0, "the client closed the connection");
    }
    Ok(String::from_utf8(bytes)?)
}

fn has_credentials(head: &str, wanted: &str) -> bool {
    let expected = format!("Basic {}", STANDARD.encode(wanted));
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    headers.any(|(name, value)| name.eq_ignore_ascii_case("proxy-authorization") && value == expected)
}
