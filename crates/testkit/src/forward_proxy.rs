//! A proxy as companies have it between their clusters and the rest of the world: CONNECT, on plain TCP.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request to a proxy is a few lines.
const LONGEST_REQUEST: usize = 8 * 1024;

/// Whom it lets through.
#[derive(Clone, Debug)]
pub enum Door {
    Open,
    /// Whoever says `user:password`.
    Password(String),
    /// Nobody: 403.
    Closed,
}

/// It lives as long as this value, and so do the ways through it.
#[derive(Debug)]
pub struct ForwardProxy {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl ForwardProxy {
    pub async fn start(door: Door) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, asked) = (listener.local_addr()?.port(), Arc::new(Mutex::default()));
        let serving = tokio::spawn(serve(listener, door, asked.clone()));
        Ok(Self { port, asked, serving })
    }

    /// `localhost:PORT`: by name, so that a list of addresses that need no proxy does not mean it.
    pub fn address(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// The places, as `host:port`, that it was asked for a way to, whether it gave one or not.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, door: Door, asked: Arc<Mutex<Vec<String>>>) {
    let mut ways = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (door, asked) = (door.clone(), asked.clone());
        // A way that breaks is the business of both its ends.
        ways.spawn(async move { lead(client, &door, &asked).await.ok() });
        while ways.try_join_next().is_some() {}
    }
}

async fn lead(mut client: TcpStream, door: &Door, asked: &Mutex<Vec<String>>) -> Result<()> {
    let head = head(&mut client).await?;
    let place = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).context("CONNECT")?;
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(place.to_owned());
    let refusal = match door {
        Door::Open => None,
        Door::Password(wanted) if says(&head, wanted) => None,
        Door::Password(_) => {
            Some("407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"proxy\"")
        }
        Door::Closed => Some("403 Forbidden"),
    };
    if let Some(refusal) = refusal {
        let answer = format!("HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n");
        client.write_all(answer.as_bytes()).await?;
        return Ok(());
    }
    let mut server = TcpStream::connect(place).await?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Up to the empty line; a client says nothing further before it is answered.
async fn head(client: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        ensure!(bytes.len() < LONGEST_REQUEST, "no end of the request in sight");
        ensure!(client.read_buf(&mut bytes).await? > 0, "the client hung up");
    }
    Ok(String::from_utf8(bytes)?)
}

fn says(head: &str, wanted: &str) -> bool {
    let expected = format!("Basic {}", STANDARD.encode(wanted));
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    headers.any(|(name, value)| name.eq_ignore_ascii_case("proxy-authorization") && value == expected)
}
