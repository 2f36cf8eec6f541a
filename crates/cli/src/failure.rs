//! Errors for people: what failed, where, the next step, the code; and the exit status.

use brokkr_api::{ErrorCode, Problem};
use brokkr_client::{ClientError, InvalidResponse, Stage};

/// The result of a command or a part of it.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Exit statuses other than 0, documented in `docs/exit-codes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// A negative result: a difference, a failed check, an object that is not ready.
    Negative = 1,
    Usage = 2,
    Failed = 3,
    Auth = 4,
    NotFound = 5,
    Conflict = 6,
    Unreachable = 7,
    /// The rollout is complete, but some agents are bad.
    SomeBad = 8,
    Timeout = 124,
    Interrupted = 130,
}

/// The result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// A difference, a failed check, or an object that is not ready: exit status 1.
    Negative,
}

/// Resources for which similar names are suggested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    Stack,
    Agent,
}

#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    pub what: String,
    pub code: Option<ErrorCode>,
    /// Details.
    pub lines: Vec<String>,
    pub next: Option<String>,
    /// Names from the command line, for suggestions.
    pub about: Vec<(Noun, String)>,
    pub exit: Exit,
}

impl Failure {
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { what: what.into(), code: None, lines: Vec::new(), next: None, about: Vec::new(), exit }
    }

    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    pub fn about(mut self, noun: Noun, name: impl ToString) -> Self {
        self.about.push((noun, name.to_string()));
        self
    }

    /// Converts a client error. `action` is what was tried: `read the stack web`.
    pub fn of_client(action: &str, error: ClientError) -> Self {
        match error {
            ClientError::Problem { problem, .. } => Self::of_problem(action, *problem),
            ClientError::Unreachable { url, source, proxy, after } => {
                let (hop, next) = stopped_at(source.stage, proxy.is_some());
                let origin = url.origin().ascii_serialization();
                let failure =
                    Self::new(Exit::Unreachable, format!("cannot {action}: the broker is not reachable"))
                        .line(format!("{hop}: {origin}: {source}, after {:.1} s", after.as_secs_f64()))
                        .next(next);
                match proxy {
                    Some(proxy) => failure.line(format!("the environment sets the proxy {proxy}")),
                    None => failure,
                }
            }
            ClientError::Timeout { url, after } => {
                Self::new(Exit::Unreachable, format!("cannot {action}: the broker did not respond"))
                    .line(format!(
                        "no response from {} within {} s",
                        url.origin().ascii_serialization(),
                        after.as_secs()
                    ))
                    .next("try again later")
            }
            ClientError::InvalidResponse { url, what } => {
                let next = match &what {
                    InvalidResponse::WebPage { .. } | InvalidResponse::Redirect { .. } => {
                        "check the URL: a login page, a captive portal or a proxy responds there instead of the broker"
                    }
                    what if what.is_transient() => "try again later",
                    _ => {
                        "check the URL, and that this program and the broker have compatible versions (brokkr version)"
                    }
                };
                Self::new(
                    Exit::Unreachable,
                    format!("cannot {action}: the response is not from a Brokkr broker"),
                )
                .line(format!("{url}: {what}"))
                .next(next)
            }
            ClientError::Unsendable { what } => Self::new(Exit::Usage, format!("cannot {action}: {what}")),
        }
    }

    fn of_problem(action: &str, problem: Problem) -> Self {
        let exit = match problem.status {
            401 | 403 => Exit::Auth,
            404 => Exit::NotFound,
            409 | 412 => Exit::Conflict,
            502..=504 => Exit::Unreachable,
            _ => Exit::Failed,
        };
        let mut failure = Self::new(exit, format!("cannot {action}: {}", problem.title)).line(problem.detail);
        failure.lines.extend(problem.errors.into_iter().map(|error| format!("- {error}")));
        if !problem.request_id.is_empty() {
            failure.lines.push(format!("request {}", problem.request_id));
        }
        failure.code = Some(problem.code);
        failure.next(problem.next)
    }
}

/// Returns the step of the connection that failed, and the next action.
fn stopped_at(stage: Stage, behind_proxy: bool) -> (&'static str, &'static str) {
    match stage {
        Stage::Tls => ("TLS", "if the broker's certificate is from a private authority, use --ca-file"),
        Stage::Clock => {
            ("clock", "set this machine's clock; if it is correct, renew the broker's certificate")
        }
        _ if behind_proxy || stage == Stage::Proxy => {
            ("proxy", "check the proxy, or bypass it with NO_PROXY")
        }
        Stage::Name => ("DNS", "check the host name in the URL, and that DNS works on this machine"),
        Stage::Connect | Stage::Proxy => {
            ("connect", "check the URL and that the broker is running; HTTPS_PROXY and NO_PROXY apply")
        }
        Stage::Exchange => {
            ("response", "try again later; the connection was closed before the response was complete")
        }
    }
}

/// `.while_trying("read the stacks")?`
pub trait WhileTrying<T> {
    fn while_trying(self, action: &str) -> Result<T>;
}

/// `.while_trying("read the stack web").about(Noun::Stack, "web")?`
pub trait About {
    fn about(self, noun: Noun, name: impl ToString) -> Self;
}

impl<T> About for Result<T> {
    fn about(self, noun: Noun, name: impl ToString) -> Self {
        self.map_err(|failure| failure.about(noun, name))
    }
}

impl<T> WhileTrying<T> for Result<T, ClientError> {
    fn while_trying(self, action: &str) -> Result<T> {
        self.map_err(|error| Failure::of_client(action, error))
    }
}
