//! A server that sends prepared responses byte for byte and records the requests.

use std::sync::{Arc, Mutex};

use brokkr_client::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub struct Scripted {
    pub url: Url,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// Starts a server with one connection per response. An empty response closes the connection; the last
    /// one repeats.
    pub async fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = asked.clone();
        tokio::spawn(async move {
            for at in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = request(&mut stream).await;
                record.lock().unwrap().push(request);
                let answer = &answers[at.min(answers.len() - 1)];
                stream.write_all(answer.as_bytes()).await.ok();
            }
        });
        Self { url, asked }
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            break;
        }
    }
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let (head_length, body_length) =
        (head.find("\r\n\r\n").unwrap_or(0) + 4, header(&head, "content-length"));
    let length = head_length + body_length.and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
    while bytes.len() < length && stream.read_buf(&mut bytes).await.unwrap() > 0 {}
    String::from_utf8(bytes).unwrap()
}

/// Returns a header of a request.
pub fn header(request: &str, name: &str) -> Option<String> {
    let is_it = |line: &&str| line.to_lowercase().starts_with(&format!("{name}:"));
    request
        .lines()
        .find(is_it)
        .and_then(|line| line.split_once(':'))
        .map(|(_, value)| value.trim().to_owned())
}

pub fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text + "\r\n" + body
}
