//! A stream of which something was read already: that comes first. And of which nothing more is read, once that is said.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug)]
pub struct Rewind<S> {
    first: Bytes,
    stream: S,
    shut: Option<Arc<AtomicBool>>,
}

impl<S> Rewind<S> {
    pub fn new(first: Bytes, stream: S) -> Self {
        Self { first, stream, shut: None }
    }

    /// Reads nothing once this is true. Whoever makes it true polls again whoever reads.
    pub fn until(self, shut: Arc<AtomicBool>) -> Self {
        Self { shut: Some(shut), ..self }
    }

    /// What nobody has read, and the stream.
    pub fn into_parts(self) -> (Bytes, S) {
        (self.first, self.stream)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewind<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.shut.as_ref().is_some_and(|shut| shut.load(Ordering::Acquire)) {
            return Poll::Pending;
        }
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..length]);
        self.first.advance(length);
        if self.first.is_empty() {
            // Nothing of it is kept.
            self.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewind<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
