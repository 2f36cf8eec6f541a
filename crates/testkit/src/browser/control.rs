//! Lets specs change what is behind the page. The protocol is in `console/e2e/README.md`.

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A command with the body of its request, and where its answer goes.
#[derive(Debug)]
pub struct Request {
    pub command: String,
    pub body: String,
    pub answer: oneshot::Sender<Result<String>>,
}

/// Receives requests; it ends when it is dropped.
pub struct Control {
    url: String,
    requests: mpsc::Receiver<Request>,
    server: JoinHandle<()>,
}

impl Control {
    pub async fn start() -> Result<Self> {
        let (sender, requests) = mpsc::channel(1);
        let router = Router::new().route("/{command}", post(receive)).with_state(sender);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        #[expect(clippy::disallowed_methods, reason = "its only client is the runner of the specs")]
        let server = tokio::spawn(async {
            // It ends with this process; the specs fail if it ends before.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, requests, server })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn next(&mut self) -> Option<Request> {
        self.requests.recv().await
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(
    State(requests): State<mpsc::Sender<Request>>,
    Path(command): Path<String>,
    body: String,
) -> Response {
    let (answer, answered) = oneshot::channel();
    let sent = requests.send(Request { command, body, answer }).await;
    match (sent, answered.await) {
        (Ok(()), Ok(Ok(text))) => text.into_response(),
        (_, Ok(Err(error))) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")).into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the test has ended").into_response(),
    }
}
