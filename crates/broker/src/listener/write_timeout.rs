//! A socket that fails if the peer does not read what is written.
//!
//! The timer exists only while a write is blocked, so that an idle socket has none.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

#[derive(Debug)]
pub struct WriteTimeout<S> {
    stream: S,
    /// How long a write may be blocked.
    timeout: Duration,
    blocked: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, blocked: None }
    }

    fn progress<T>(&mut self, task: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let timeout = self.timeout;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match blocked.as_mut().poll(task) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the peer does not read the response",
            ))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(task, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(task, buffer);
        self.progress(task, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(task);
        self.progress(task, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_shutdown(task);
        self.progress(task, written)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_stops_reading_is_disconnected_and_a_slow_one_is_not() {
        let timeout = Duration::from_secs(1);
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut socket = WriteTimeout::new(ours, timeout);
        let reading = tokio::spawn(async move {
            for _ in 0..30 {
                tokio::time::sleep(timeout / 20).await;
                theirs.read_exact(&mut [0; 32]).await.expect("bytes arrive");
            }
            theirs
        });
        // Slow, longer than the timeout in total, but making progress.
        socket.write_all(&[7; 30 * 32]).await.expect("it is read");
        let theirs = reading.await.expect("it reads");
        let failed = socket.write_all(&[7; 320]).await.expect_err("the peer no longer reads");
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }
}
