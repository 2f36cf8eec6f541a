//! Messages of the PostgreSQL protocol, version 3: their boundaries, and the statement that each carries.

use std::collections::HashMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// `SSLRequest` and `GSSENCRequest`, which are answered by one byte instead of a message.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
/// No message in these tests is larger; a greater length means that the proxy has lost synchronisation.
const LARGEST: usize = 64 * 1024 * 1024;

/// One message as sent, with its length. Messages before the session starts have no kind.
#[derive(Debug)]
pub(super) struct Message {
    pub kind: u8,
    pub bytes: Vec<u8>,
}

impl Message {
    /// Reads one message of a session.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let kind = from.read_u8().await?;
        let mut bytes = vec![kind];
        read_length_prefixed(from, &mut bytes).await?;
        Ok(Self { kind, bytes })
    }

    /// Reads a message that a client sends before its session begins: a length and a code, without a kind.
    pub async fn read_startup(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = Vec::new();
        read_length_prefixed(from, &mut bytes).await?;
        Ok(Self { kind: 0, bytes })
    }

    pub fn is_encryption_request(&self) -> bool {
        let code = self.bytes.get(4..8).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes);
        self.bytes.len() == 8 && code.is_some_and(|code| ENCRYPTION_REQUESTS.contains(&code))
    }

    /// Returns the zero-terminated text after `skip` others.
    fn text(&self, skip: usize) -> String {
        let body = self.bytes.get(5..).unwrap_or_default();
        let text = body.split(|byte| *byte == 0).nth(skip).unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

async fn read_length_prefixed(from: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    let rest = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX).saturating_sub(4);
    if rest > LARGEST {
        return Err(io::Error::other("a message has an impossible length"));
    }
    bytes.extend_from_slice(&length);
    let start = bytes.len();
    bytes.resize(start + rest, 0);
    from.read_exact(&mut bytes[start..]).await?;
    Ok(())
}

/// The prepared statements and the open transaction of one session.
#[derive(Debug, Default)]
pub(super) struct Session {
    prepared: HashMap<String, String>,
    transaction: Transaction,
}

/// An open transaction, up to the statement that is being sent to the server.
#[derive(Debug, Default)]
pub struct Transaction {
    /// All earlier statements after BEGIN.
    pub earlier: Vec<Statement>,
    pub current: Statement,
}

/// A statement, with the message that carries it.
#[derive(Clone, Debug, Default)]
pub struct Statement {
    /// On one line, in lower case.
    pub text: String,
    /// The message with the parameters.
    pub bytes: Vec<u8>,
}

impl Session {
    /// Processes a message of the client. Returns the transaction if the message starts a statement.
    pub fn next_statement(&mut self, message: &Message) -> Option<&Transaction> {
        let text = self.statement(message)?;
        let transaction = &mut self.transaction;
        let previous =
            std::mem::replace(&mut transaction.current, Statement { text, bytes: message.bytes.clone() });
        if previous.text.starts_with("begin") {
            transaction.earlier.clear();
        } else {
            transaction.earlier.push(previous);
        }
        Some(transaction)
    }

    fn statement(&mut self, message: &Message) -> Option<String> {
        match message.kind {
            b'P' => {
                self.prepared.insert(message.text(0), normalised(&message.text(1)));
                None
            }
            b'Q' => Some(normalised(&message.text(0))),
            // The portal comes first, then the statement.
            b'B' => Some(self.prepared.get(&message.text(1)).cloned().unwrap_or_default()),
            _ => None,
        }
    }
}

/// Returns whether the server responds to this message with `ReadyForQuery`.
pub(super) fn awaits_ready_for_query(kind: u8) -> bool {
    matches!(kind, b'Q' | b'S')
}

/// `ReadyForQuery`.
pub(super) const READY: u8 = b'Z';

fn normalised(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}
