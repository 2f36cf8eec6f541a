//! Messages of the PostgreSQL protocol, version 3: where one ends, and which statement it carries.

use std::collections::HashMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// `SSLRequest` and `GSSENCRequest`, which are answered by one byte instead of a message.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
/// Nothing in these tests is larger; a length beyond it means that the proxy has lost its place.
const LARGEST: usize = 64 * 1024 * 1024;

/// One message with its length, as it travels; the kind is missing before the session begins.
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
        read_counted(from, &mut bytes).await?;
        Ok(Self { kind, bytes })
    }

    /// Reads what a client says before its session begins: a length and a code, without a kind.
    pub async fn read_opening(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = Vec::new();
        read_counted(from, &mut bytes).await?;
        Ok(Self { kind: 0, bytes })
    }

    pub fn asks_for_encryption(&self) -> bool {
        let code = self.bytes.get(4..8).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes);
        self.bytes.len() == 8 && code.is_some_and(|code| ENCRYPTION_REQUESTS.contains(&code))
    }

    /// The text after so many texts that end with a zero.
    fn text(&self, skip: usize) -> String {
        let body = self.bytes.get(5..).unwrap_or_default();
        let text = body.split(|byte| *byte == 0).nth(skip).unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

async fn read_counted(from: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    let rest = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX).saturating_sub(4);
    if rest > LARGEST {
        return Err(io::Error::other("a message of an impossible length"));
    }
    bytes.extend_from_slice(&length);
    let start = bytes.len();
    bytes.resize(start + rest, 0);
    from.read_exact(&mut bytes[start..]).await?;
    Ok(())
}

/// What one session has prepared, and what its open transaction has done.
#[derive(Debug, Default)]
pub(super) struct Session {
    prepared: HashMap<String, String>,
    /// Every statement since BEGIN, without it.
    pub transaction: Vec<Passed>,
}

/// A statement that was passed on, with the message that carried it.
#[derive(Clone, Debug)]
pub struct Passed {
    /// In one line, lower case.
    pub statement: String,
    /// With its parameters, as they travel.
    pub bytes: Vec<u8>,
}

impl Session {
    /// The statement that begins with this message of the client, if one does: in one line and lower case.
    pub fn statement(&mut self, message: &Message) -> Option<String> {
        match message.kind {
            b'P' => {
                self.prepared.insert(message.text(0), plain(&message.text(1)));
                None
            }
            b'Q' => Some(plain(&message.text(0))),
            // The portal comes first, then the statement.
            b'B' => Some(self.prepared.get(&message.text(1)).cloned().unwrap_or_default()),
            _ => None,
        }
    }

    /// Takes in what was passed on.
    pub fn passed(&mut self, statement: String, message: &Message) {
        if statement.starts_with("begin") {
            self.transaction.clear();
        } else {
            self.transaction.push(Passed { statement, bytes: message.bytes.clone() });
        }
    }
}

/// Whether the server answers this message with "ready for the next".
pub(super) fn ends_a_cycle(kind: u8) -> bool {
    matches!(kind, b'Q' | b'S')
}

/// "Ready for the next".
pub(super) const READY: u8 = b'Z';

fn plain(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}
