//! The listener, and the two directions of one connection.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::Link;
use super::faults::{ActiveRule, Fault, Rules, When};
use super::wire::{Message, READY, Session, awaits_ready_for_query};
use crate::rules::Gate;

#[derive(Debug)]
pub(super) struct Shared {
    upstream: AtomicU16,
    pub(super) rules: Rules,
    link: Mutex<State>,
    open: AtomicUsize,
}

/// The link, and the tokens that close or silence all open connections.
#[derive(Debug)]
struct State {
    link: Link,
    cut: CancellationToken,
    silence: CancellationToken,
}

impl Shared {
    pub(super) fn new(upstream: u16) -> Self {
        let state =
            State { link: Link::Up, cut: CancellationToken::new(), silence: CancellationToken::new() };
        let upstream = AtomicU16::new(upstream);
        Self { upstream, rules: Rules::default(), link: Mutex::new(state), open: AtomicUsize::new(0) }
    }

    /// Connects to the server on another port from now on.
    pub(super) fn redirect(&self, port: u16) {
        self.upstream.store(port, Ordering::Relaxed);
    }

    pub(super) fn set_link(&self, link: Link) {
        let mut state = self.state();
        state.link = link;
        if link == Link::Blackhole {
            state.silence.cancel();
        } else {
            state.silence = CancellationToken::new();
        }
    }

    pub(super) fn cut_all(&self) {
        let mut state = self.state();
        state.cut.cancel();
        state.cut = CancellationToken::new();
    }

    pub(super) fn connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        let (link, cut, silence) = {
            let state = shared.state();
            (state.link, state.cut.clone(), state.silence.child_token())
        };
        if link == Link::Refusing {
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            shared.open.fetch_add(1, Ordering::SeqCst);
            let connection = Connection::new(&shared, silence);
            tokio::select! {
                () = cut.cancelled() => {}
                // The end of one direction ends the connection.
                _ = connection.carry(client) => {}
            }
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

struct Connection<'a> {
    shared: &'a Shared,
    /// Cancelled when nothing passes any more.
    silence: CancellationToken,
    session: Mutex<Session>,
    /// For each query cycle that the server has not finished, the rule that applies to its response.
    cycles: Mutex<VecDeque<Option<ActiveRule>>>,
}

impl<'a> Connection<'a> {
    fn new(shared: &'a Shared, silence: CancellationToken) -> Self {
        Self { shared, silence, session: Mutex::default(), cycles: Mutex::default() }
    }

    async fn carry(&self, mut client: TcpStream) -> io::Result<()> {
        self.block_if_silent().await;
        let mut server =
            TcpStream::connect(("127.0.0.1", self.shared.upstream.load(Ordering::Relaxed))).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        loop {
            let opening = Message::read_startup(&mut client).await?;
            self.block_if_silent().await;
            server.write_all(&opening.bytes).await?;
            if !opening.is_encryption_request() {
                break;
            }
            let refusal = server.read_u8().await?;
            client.write_u8(refusal).await?;
        }
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            ended = self.forward(from_client, to_server) => ended,
            ended = self.return_results(from_server, to_client) => ended,
        }
    }

    /// Copies from the client to the server.
    async fn forward(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        // The rule of a statement in a query cycle that has not ended yet.
        let mut pending: Option<ActiveRule> = None;
        loop {
            let message = Message::read(&mut from).await?;
            self.block_if_silent().await;
            if let Some(rule) = self.find_rule(&message) {
                match rule.fault.when {
                    When::Before => self.apply(&rule).await?,
                    When::After => pending = Some(rule),
                }
            }
            if awaits_ready_for_query(message.kind) {
                locked(&self.cycles).push_back(pending.take());
            }
            to.write_all(&message.bytes).await?;
        }
    }

    fn find_rule(&self, message: &Message) -> Option<ActiveRule> {
        let mut session = locked(&self.session);
        let transaction = session.next_statement(message)?;
        self.shared.rules.find(transaction).map(|applied| applied.rule)
    }

    /// Copies from the server to the client.
    async fn return_results(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut kept = Vec::new();
        loop {
            let message = Message::read(&mut from).await?;
            self.block_if_silent().await;
            let rule = locked(&self.cycles).front().cloned().flatten();
            if message.kind == READY {
                locked(&self.cycles).pop_front();
            }
            let Some(rule) = rule else {
                to.write_all(&message.bytes).await?;
                continue;
            };
            kept.extend_from_slice(&message.bytes);
            if message.kind == READY {
                self.apply(&rule).await?;
                to.write_all(&std::mem::take(&mut kept)).await?;
            }
        }
    }

    /// Applies the fault; an error closes the connection.
    async fn apply(&self, rule: &ActiveRule) -> io::Result<()> {
        let cut = || Err(io::Error::other("closed by a rule"));
        rule.hit();
        match rule.fault.fault {
            Fault::Cut => cut(),
            Fault::Hold => match rule.opened().await {
                Gate::Discard => cut(),
                Gate::Forward | Gate::Closed => Ok(()),
            },
            Fault::Silence => {
                self.silence.cancel();
                std::future::pending().await
            }
            Fault::Delay(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
        }
    }

    /// Waits for ever if the connection is silent.
    async fn block_if_silent(&self) {
        if self.silence.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
