//! Integration with GitHub Actions and GitLab: log groups, an annotation for failures, a summary, and step outputs.
//!
//! Both parse special lines of the log. GitHub also reads files that are named in the environment.

use std::io::Write as _;

use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ci {
    GitHub,
    GitLab,
}

/// The name of GitLab's log section, the same at its start and end.
const SECTION: &str = "brokkr";

impl Ci {
    pub fn of_environment() -> Option<Self> {
        let is_true = |name: &str| std::env::var(name).is_ok_and(|value| value == "true");
        if is_true("GITHUB_ACTIONS") {
            return Some(Self::GitHub);
        }
        is_true("GITLAB_CI").then_some(Self::GitLab)
    }

    pub fn group_start(self, title: &str) -> String {
        match self {
            Self::GitHub => format!("::group::{}", escaped(title)),
            Self::GitLab => {
                let now = Timestamp::now().as_second();
                format!("\u{1b}[0Ksection_start:{now}:{SECTION}\r\u{1b}[0K{title}")
            }
        }
    }

    pub fn group_end(self) -> String {
        match self {
            Self::GitHub => "::endgroup::".to_owned(),
            Self::GitLab => {
                let now = Timestamp::now().as_second();
                format!("\u{1b}[0Ksection_end:{now}:{SECTION}\r\u{1b}[0K")
            }
        }
    }

    /// Returns an annotation for the run, if the system supports them.
    pub fn annotation(self, what: &str, lines: &[String]) -> Option<String> {
        let text = [&[what.to_owned()], lines].concat().join("\n");
        (self == Self::GitHub).then(|| format!("::error title=brokkr::{}", escaped(&text)))
    }

    pub fn summarise(self, markdown: &str) -> std::io::Result<()> {
        self.append("GITHUB_STEP_SUMMARY", markdown)
    }

    /// Sets a step output. `value` must be a single line.
    pub fn output(self, name: &str, value: &str) -> std::io::Result<()> {
        self.append("GITHUB_OUTPUT", &format!("{name}={value}"))
    }

    fn append(self, variable: &str, text: &str) -> std::io::Result<()> {
        let file = std::env::var_os(variable).filter(|file| !file.is_empty());
        let Some(file) = file.filter(|_| self == Self::GitHub) else { return Ok(()) };
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file)?;
        writeln!(file, "{text}")
    }
}

/// Escapes line breaks, which end a command of GitHub.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_a_single_line() {
        let lines = ["100% of a\r\nb".to_owned()];
        assert_eq!(
            Ci::GitHub.annotation("42 failed", &lines).unwrap(),
            "::error title=brokkr::42 failed%0A100%25 of a%0D%0Ab"
        );
        assert_eq!(Ci::GitLab.annotation("42 failed", &lines), None);
    }
}
