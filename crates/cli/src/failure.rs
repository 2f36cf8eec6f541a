//! What went wrong, told as: what, where, next step, code. And the exit status for it.

use brokkr_api::{ErrorCode, Problem};
use brokkr_client::{ClientError, Stage, WrongAnswer};

/// The statuses that scripts rely on; `docs/exit-codes.md` has them, too. 0 is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The answer is no: it differs, it does not hold.
    No = 1,
    Usage = 2,
    Failed = 3,
    Auth = 4,
    NotFound = 5,
    Conflict = 6,
    Unreachable = 7,
    Timeout = 124,
    Interrupted = 130,
}

/// What a command that asks something found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
}

/// Things that have names which people mistype.
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
    /// Where, and what exactly.
    pub lines: Vec<String>,
    pub next: Option<String>,
    /// Names that were given, in case one of them was meant otherwise.
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

    /// `action` is what was tried: `read the stack web`.
    pub fn of_client(action: &str, error: ClientError) -> Self {
        match error {
            ClientError::Problem { problem, .. } => Self::of_problem(action, *problem),
            ClientError::Unreachable { url, source, proxy, after } => {
                let (hop, next) = stopped_at(source.stage, proxy.is_some());
                let place = url.origin().ascii_serialization();
                let failure =
                    Self::new(Exit::Unreachable, format!("cannot {action}: the broker cannot be reached"))
                        .line(format!("{hop}: {place}: {source}, after {:.1} s", after.as_secs_f64()))
                        .next(next);
                match proxy {
                    Some(proxy) => failure.line(format!("the environment names the proxy {proxy}")),
                    None => failure,
                }
            }
            ClientError::Timeout { url, after } => {
                Self::new(Exit::Unreachable, format!("cannot {action}: the broker does not answer"))
                    .line(format!(
                        "nothing came from {} within {} s",
                        url.origin().ascii_serialization(),
                        after.as_secs()
                    ))
                    .next("try again shortly")
            }
            ClientError::BadAnswer { url, what } => {
                let next = match &what {
                    WrongAnswer::WebPage { .. } | WrongAnswer::Redirect { .. } => {
                        "check the address: a login page, a portal or a proxy answers there instead of the broker"
                    }
                    what if what.is_transient() => "try again shortly",
                    _ => "check the address, and that this program and the broker are of a similar version",
                };
                Self::new(Exit::Unreachable, format!("cannot {action}: this was not the broker's answer"))
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

/// The hop on the way to the broker at which it ends, and what to do there.
fn stopped_at(stage: Stage, behind_proxy: bool) -> (&'static str, &'static str) {
    match stage {
        Stage::Tls => {
            ("TLS", "if the broker's certificate is from an authority of your own, give it with --ca-file")
        }
        Stage::Clock => ("clock", "set this machine's clock; if it is right, renew the broker's certificate"),
        _ if behind_proxy || stage == Stage::Proxy => {
            ("proxy", "check the proxy, or go past it with NO_PROXY")
        }
        Stage::Name => ("DNS", "check the name in the address, and that this machine can look names up"),
        Stage::Connect | Stage::Proxy => (
            "connect",
            "check the address and that the broker runs there; HTTPS_PROXY and NO_PROXY are honoured",
        ),
        Stage::Exchange => {
            ("answer", "try again shortly; the connection broke before the broker had answered")
        }
    }
}

/// `.while_trying("read the stacks")?`
pub trait WhileTrying<T> {
    fn while_trying(self, action: &str) -> Result<T, Failure>;
}

/// `.while_trying("read the stack web").about(Noun::Stack, "web")?`
pub trait About {
    fn about(self, noun: Noun, name: impl ToString) -> Self;
}

impl<T> About for Result<T, Failure> {
    fn about(self, noun: Noun, name: impl ToString) -> Self {
        self.map_err(|failure| failure.about(noun, name))
    }
}

impl<T> WhileTrying<T> for Result<T, ClientError> {
    fn while_trying(self, action: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::of_client(action, error))
    }
}
