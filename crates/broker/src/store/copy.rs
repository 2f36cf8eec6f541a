//! Reads rows of `COPY … TO STDOUT (FORMAT binary)`, for tables that are read as a whole. This is much
//! cheaper per row than a query; with a million rows, it determines how long a replica takes to start.
//!
//! The format: a header, then per row the number of fields (16 bits), and each field as its length (32 bits,
//! -1 is NULL) and its bytes. A -1 instead of the number of fields ends the data. All in network byte order.

use std::ops::{Deref, DerefMut};

use bytes::{Buf as _, Bytes, BytesMut};
use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::outbox::READ_ONLY_SNAPSHOT;

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// 2000-01-01, the epoch of PostgreSQL.
const EPOCH_SECOND: i64 = 946_684_800;

/// A connection for copies, in a read-only transaction.
///
/// It is closed when it is dropped, and not used again: sqlx does not count the responses to a copy that fails or is not read to its
/// end. The next user of the connection would get the response to the statement before, each time.
#[derive(Debug)]
pub struct CopyConnection(PoolConnection<Postgres>);

impl CopyConnection {
    pub async fn begin(pool: &PgPool) -> Result<Self, sqlx::Error> {
        let mut connection = pool.acquire().await?;
        connection.close_on_drop();
        sqlx::query(READ_ONLY_SNAPSHOT).execute(&mut *connection).await?;
        Ok(Self(connection))
    }

    /// Disables the statement timeout: with it, a long copy would be interrupted and start over, forever.
    pub async fn disable_timeout(&mut self) -> Result<(), sqlx::Error> {
        sqlx::query("SET LOCAL statement_timeout = 0").execute(&mut *self.0).await.map(|_| ())
    }

    /// Ends the transaction.
    pub async fn commit(&mut self) -> Result<(), sqlx::Error> {
        sqlx::query("COMMIT").execute(&mut *self.0).await.map(|_| ())
    }
}

impl Deref for CopyConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for CopyConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

/// Calls `take` for each row of the statement.
pub async fn copy_rows(
    connection: &mut CopyConnection,
    statement: &str,
    mut take: impl FnMut(&mut Fields) -> Result<(), sqlx::Error>,
) -> Result<(), sqlx::Error> {
    let mut stream = connection.copy_out_raw(statement).await?;
    let mut rows = Rows::default();
    while let Some(piece) = stream.try_next().await? {
        rows.push(&piece);
        while let Some(mut row) = rows.next()? {
            take(&mut row)?;
        }
    }
    Ok(())
}

/// Sends the rows of the statement in batches, as `read` reads them. Ends early if the receiver is gone.
pub async fn copy_batches<T>(
    connection: &mut CopyConnection,
    statement: &str,
    size: usize,
    batches: &mpsc::Sender<Vec<T>>,
    mut read: impl FnMut(&mut Fields) -> Result<T, sqlx::Error>,
) -> Result<(), sqlx::Error> {
    let mut stream = connection.copy_out_raw(statement).await?;
    let (mut rows, mut batch) = (Rows::default(), Vec::with_capacity(size));
    while let Some(piece) = stream.try_next().await? {
        rows.push(&piece);
        while let Some(mut row) = rows.next()? {
            batch.push(read(&mut row)?);
        }
        if batch.len() >= size {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(size));
            if batches.send(full).await.is_err() {
                return Ok(());
            }
        }
    }
    let _ = batches.send(batch).await;
    Ok(())
}

/// The rows in what was received so far. The server sends one row per message, but does not guarantee it: an incomplete row is kept
/// until the next message.
#[derive(Debug, Default)]
struct Rows {
    rest: BytesMut,
    begun: bool,
}

impl Rows {
    fn push(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
    }

    /// Returns the next row that is complete.
    fn next(&mut self) -> Result<Option<Fields>, sqlx::Error> {
        if !self.begun {
            let Some(body) = after_header(&self.rest)? else { return Ok(None) };
            self.rest.advance(body);
            self.begun = true;
        }
        while let Some(length) = row_length(&self.rest) {
            let mut row = self.rest.split_to(length).freeze();
            if row.get_i16() >= 0 {
                return Ok(Some(Fields(row)));
            }
        }
        Ok(None)
    }
}

fn broken(what: &str) -> sqlx::Error {
    sqlx::Error::Protocol(format!("failed to parse a copied row: {what}"))
}

/// Returns where the rows begin, once the header is complete.
fn after_header(bytes: &[u8]) -> Result<Option<usize>, sqlx::Error> {
    const FIXED: usize = SIGNATURE.len() + 8;
    let Some(mut rest) = bytes.get(..FIXED) else { return Ok(None) };
    if !rest.starts_with(SIGNATURE) {
        return Err(broken("the header is invalid"));
    }
    rest.advance(SIGNATURE.len() + 4);
    let extension = usize::try_from(rest.get_i32()).map_err(|_| broken("the header is invalid"))?;
    Ok((bytes.len() >= FIXED + extension).then_some(FIXED + extension))
}

/// Returns the length of the first row, once it is complete.
fn row_length(bytes: &[u8]) -> Option<usize> {
    let fields = bytes.get(..2).map(|mut count| count.get_i16())?;
    let mut at = 2;
    for _ in 0..fields.max(0) {
        let length = bytes.get(at..at + 4).map(|mut length| length.get_i32())?;
        at += 4 + usize::try_from(length).unwrap_or_default();
    }
    (at <= bytes.len()).then_some(at)
}

/// Returns the time this many microseconds after the epoch of PostgreSQL.
fn time_at(micros: i64) -> Result<Timestamp, sqlx::Error> {
    let epoch = Timestamp::from_second(EPOCH_SECOND).map_err(|_| broken("a time is invalid"))?;
    epoch.checked_add(SignedDuration::from_micros(micros)).map_err(|_| broken("a time is out of range"))
}

/// The unread fields of a row, in the order of the statement.
#[derive(Debug)]
pub struct Fields(Bytes);

impl Fields {
    /// Returns the next field; none if it is NULL.
    pub fn optional(&mut self) -> Result<Option<Bytes>, sqlx::Error> {
        let length = self.0.try_get_i32().map_err(|_| broken("a field is missing"))?;
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        if length > self.0.len() {
            return Err(broken("it is truncated"));
        }
        Ok(Some(self.0.split_to(length)))
    }

    pub fn bytes(&mut self) -> Result<Bytes, sqlx::Error> {
        self.optional()?.ok_or_else(|| broken("a field is NULL"))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], sqlx::Error> {
        self.bytes()?.as_ref().try_into().map_err(|_| broken("a field has an unexpected size"))
    }

    pub fn text(&mut self) -> Result<String, sqlx::Error> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| broken("a text is not UTF-8"))
    }

    pub fn uuid(&mut self) -> Result<Uuid, sqlx::Error> {
        self.fixed().map(Uuid::from_bytes)
    }

    pub fn optional_uuid(&mut self) -> Result<Option<Uuid>, sqlx::Error> {
        let read =
            |bytes: Bytes| Uuid::from_slice(&bytes).map_err(|_| broken("an id has an unexpected size"));
        self.optional()?.map(read).transpose()
    }

    pub fn number(&mut self) -> Result<i64, sqlx::Error> {
        self.fixed().map(i64::from_be_bytes)
    }

    pub fn optional_number(&mut self) -> Result<Option<i64>, sqlx::Error> {
        let read = |bytes: Bytes| {
            let bytes = bytes.as_ref().try_into().map_err(|_| broken("a number has an unexpected size"))?;
            Ok(i64::from_be_bytes(bytes))
        };
        self.optional()?.map(read).transpose()
    }

    pub fn truth(&mut self) -> Result<bool, sqlx::Error> {
        Ok(self.fixed()? != [0u8])
    }

    pub fn digest(&mut self) -> Result<[u8; 32], sqlx::Error> {
        self.fixed()
    }

    pub fn time(&mut self) -> Result<Timestamp, sqlx::Error> {
        self.number().and_then(time_at)
    }

    pub fn optional_time(&mut self) -> Result<Option<Timestamp>, sqlx::Error> {
        self.optional_number()?.map(time_at).transpose()
    }

    /// Returns the text of a jsonb field.
    pub fn json(&mut self) -> Result<Bytes, sqlx::Error> {
        let mut bytes = self.bytes()?;
        if bytes.try_get_u8() != Ok(1) {
            return Err(broken("unknown version of jsonb"));
        }
        Ok(bytes)
    }

    /// Returns ids that were concatenated by `string_agg(uuid_send(…), '')`; NULL is empty.
    pub fn uuids(&mut self) -> Result<Vec<Uuid>, sqlx::Error> {
        let bytes = self.optional()?.unwrap_or_default();
        bytes.chunks(16).map(|id| Uuid::from_slice(id).map_err(|_| broken("an id is truncated"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_complete_only_with_all_of_its_fields() {
        let row = [&[0, 2, 0, 0, 0, 1, 7][..], &[255, 255, 255, 255]].concat();
        for cut in 0..row.len() {
            assert_eq!(row_length(&row[..cut]), None, "{cut}");
        }
        assert_eq!(row_length(&[&row[..], &[9]].concat()), Some(row.len()));
        assert_eq!(row_length(&[255, 255]), Some(2), "the end");
        let mut fields = Fields(Bytes::from(row[2..].to_vec()));
        assert!(fields.truth().unwrap());
        assert_eq!(fields.optional().unwrap(), None);
        assert!(fields.optional().is_err(), "there is no third");
    }

    #[test]
    fn the_header_may_come_in_pieces() {
        let header = [&SIGNATURE[..], &[0; 4], &[0, 0, 0, 2], &[1, 2]].concat();
        for cut in 0..header.len() {
            assert!(matches!(after_header(&header[..cut]), Ok(None)), "{cut}");
        }
        assert!(matches!(after_header(&header), Ok(Some(21))));
        assert!(after_header(&[0; 30]).is_err());
    }
}
