//! A fake broker with prepared responses, and the real `brokkr` with its own home directory.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use brokkr_api::{ErrorCode, Problem};
use serde_json::Value;

/// A request: `METHOD /path`, headers and body.
#[derive(Clone, Debug)]
pub struct Asked {
    pub line: String,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Clone)]
enum Body {
    Json(Value),
    /// Exactly these bytes, of this media type.
    Raw(&'static str, String),
}

type Responses = HashMap<String, Vec<(u16, Body)>>;

pub struct FakeBroker {
    pub url: String,
    pub home: tempfile::TempDir,
    responses: Arc<Mutex<Responses>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl FakeBroker {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (responses, asked) = (Arc::new(Mutex::new(Responses::new())), Arc::new(Mutex::new(Vec::new())));
        let (thread_responses, thread_asked) = (responses.clone(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let asked = read(&mut stream);
                let (status, body) = next(&mut thread_responses.lock().unwrap(), &asked.line);
                thread_asked.lock().unwrap().push(asked);
                respond(&mut stream, status, &body);
            }
        });
        Self { url, home: tempfile::tempdir().unwrap(), responses, asked }
    }

    /// Adds a response to a request. Responses are returned in order, and the last one is repeated.
    pub fn on(self, request: &str, status: u16, body: impl serde::Serialize) -> Self {
        self.then(request, status, Body::Json(serde_json::to_value(body).unwrap()))
    }

    /// Adds a response with exactly this text, such as the content of a deployment object.
    pub fn on_yaml(self, request: &str, text: &str) -> Self {
        self.then(request, 200, Body::Raw("application/yaml", text.to_owned()))
    }

    /// Adds a stream of (event, data) that ends after the last one.
    pub fn on_stream(self, request: &str, messages: &[(&str, Value)]) -> Self {
        let message = |(at, (event, data)): (usize, &(&str, Value))| {
            format!("event: {event}\nid: 1.{at}\ndata: {data}\n\n")
        };
        let text = messages.iter().enumerate().map(message).collect::<String>();
        self.then(request, 200, Body::Raw("text/event-stream", format!(": hello\n\n{text}")))
    }

    fn then(self, request: &str, status: u16, body: Body) -> Self {
        self.responses.lock().unwrap().entry(request.to_owned()).or_default().push((status, body));
        self
    }

    pub fn refuses(self, request: &str, code: ErrorCode, detail: &str) -> Self {
        self.on(request, code.status(), Problem::new(code, detail))
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Returns the `POST` requests.
    pub fn posted(&self) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.line.starts_with("POST ")).collect()
    }

    /// Runs `brokkr` with credentials in the environment.
    pub fn brokkr(&self, arguments: &[&str]) -> Ran {
        self.run(arguments, &[("BROKKR_SERVER", &self.url), ("BROKKR_TOKEN", "brk_from-environment")], "")
    }

    pub fn run(&self, arguments: &[&str], environment: &[(&str, &str)], stdin: &str) -> Ran {
        self.run_as(Path::new(env!("CARGO_BIN_EXE_brokkr")), arguments, environment, stdin)
    }

    /// Runs the program under another name.
    pub fn run_as(
        &self,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
        stdin: &str,
    ) -> Ran {
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
        Ran::of(child.wait_with_output().unwrap())
    }
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    pub exit: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { exit: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    #[track_caller]
    pub fn exits(self, wanted: i32) -> Self {
        assert_eq!(self.exit, wanted, "{self:#?}");
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    #[track_caller]
    pub fn prints(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    #[track_caller]
    pub fn prints_exactly(self, text: &str) -> Self {
        assert_eq!(self.stdout, text, "{self:#?}");
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

fn next(responses: &mut Responses, line: &str) -> (u16, Body) {
    let path = line.split('?').next().unwrap();
    match responses.get_mut(path) {
        Some(left) if left.len() > 1 => left.remove(0),
        Some(left) => left[0].clone(),
        None => {
            let problem = Problem::new(ErrorCode::BRK2001, format!("nothing prepared for {path}"));
            (404, Body::Json(serde_json::to_value(problem).unwrap()))
        }
    }
}

fn read(stream: &mut TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let line = line.rsplit_once(' ').map(|(line, _)| line.to_owned()).unwrap_or_default();
    let mut headers = HashMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Asked { line, headers, body }
}

fn respond(stream: &mut TcpStream, status: u16, body: &Body) {
    let (media_type, body) = match body {
        Body::Json(_) if status == 204 => ("application/json", String::new()),
        Body::Json(body) if status < 400 => ("application/json", body.to_string()),
        Body::Json(body) => ("application/problem+json", body.to_string()),
        Body::Raw(media_type, text) => (*media_type, text.clone()),
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok();
}
