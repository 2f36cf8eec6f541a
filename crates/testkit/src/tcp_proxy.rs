//! A TCP proxy that chooses one of several servers for every connection, delays what they send, and cuts connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A running proxy; it ends with its connections when it is dropped.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    upstreams: Vec<SocketAddr>,
    /// In milliseconds.
    delay: AtomicU64,
    /// Ends the connections that are open.
    open: Mutex<CancellationToken>,
}

impl TcpProxy {
    /// Starts a proxy in front of these servers. Every connection goes to one of them, at random, as this seed determines.
    pub async fn start(upstreams: Vec<SocketAddr>, seed: u64) -> Result<Self> {
        let listener =
            TcpListener::bind("127.0.0.1:0").await.context("cannot listen on the loopback address")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { upstreams, delay: AtomicU64::new(0), open: Mutex::default() });
        let serving = tokio::spawn(serve(listener, shared.clone(), StdRng::seed_from_u64(seed)));
        Ok(Self { address, shared, serving })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays everything that the servers send from now on.
    pub fn delay_responses(&self, delay: Duration) {
        self.shared.delay.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Cuts all connections, so that the clients connect again, possibly to another server.
    pub fn cut(&self) {
        std::mem::take(&mut *self.shared.open.lock().unwrap_or_else(PoisonError::into_inner)).cancel();
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, mut random: StdRng) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let upstream = shared.upstreams.choose(&mut random).copied();
        let open = shared.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shared = shared.clone();
        // Errors are visible to both ends of a connection.
        connections.spawn(async move {
            open.run_until_cancelled(connect(client, upstream, &shared)).await.and_then(Result::ok)
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(client: TcpStream, upstream: Option<SocketAddr>, shared: &Shared) -> Result<()> {
    let server = TcpStream::connect(upstream.context("no server")?).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    // In order, each chunk as long after its arrival as the delay was then.
    let (sender, chunks) = mpsc::unbounded_channel();
    tokio::select! {
        sent = tokio::io::copy(&mut from_client, &mut to_server) => { sent?; }
        received = receive(from_server, sender, shared) => received?,
        delivered = deliver(chunks, to_client) => delivered?,
    }
    Ok(())
}

type Chunk = (Instant, Vec<u8>);

async fn receive(
    mut server: OwnedReadHalf,
    chunks: mpsc::UnboundedSender<Chunk>,
    shared: &Shared,
) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = server.read(&mut buffer).await?;
        if length == 0 {
            // `deliver` ends after the last chunk.
            drop(chunks);
            return std::future::pending().await;
        }
        let due = Instant::now() + Duration::from_millis(shared.delay.load(Ordering::SeqCst));
        chunks.send((due, buffer[..length].to_vec())).context("the client is gone")?;
    }
}

async fn deliver(mut chunks: mpsc::UnboundedReceiver<Chunk>, mut client: OwnedWriteHalf) -> Result<()> {
    while let Some((due, chunk)) = chunks.recv().await {
        tokio::time::sleep_until(due).await;
        client.write_all(&chunk).await?;
    }
    Ok(())
}
