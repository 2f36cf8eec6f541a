//! A socket whose peer has to read: what we have to say does not wait for ever to be taken.
//!
//! The clock exists only while something is stuck, so that a socket on which nothing happens has none.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

#[derive(Debug)]
pub struct Paced<S> {
    stream: S,
    /// How long a peer may take nothing of what is there for it.
    patience: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, stuck: None }
    }

    fn progress<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let patience = self.patience;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match stuck.as_mut().poll(context) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.progress(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(context);
        self.progress(context, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_shutdown(context);
        self.progress(context, written)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_stops_reading_is_cut_and_a_slow_one_is_not() {
        let patience = Duration::from_secs(1);
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut paced = Paced::new(ours, patience);
        let reading = tokio::spawn(async move {
            for _ in 0..30 {
                tokio::time::sleep(patience / 20).await;
                theirs.read_exact(&mut [0; 32]).await.expect("they come");
            }
            theirs
        });
        // Slow, longer than patience in all, but on its way.
        paced.write_all(&[7; 30 * 32]).await.expect("it is read");
        let theirs = reading.await.expect("it reads");
        let failed = paced.write_all(&[7; 320]).await.expect_err("nobody reads any more");
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }
}
