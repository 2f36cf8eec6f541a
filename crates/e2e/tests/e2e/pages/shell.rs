//! Types the commands of a page into one bash, and reads the output and exit status of each.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use brokkr_testkit::Launch;
use brokkr_testkit::process::run;

use super::page::{Command, Page};

/// The output of a page's commands.
#[derive(Debug, Default)]
pub struct PageOutput {
    /// The output of each command, in order.
    pub outputs: Vec<String>,
    /// A command that failed, and its output.
    pub complaint: Option<String>,
}

/// The start of the line between two commands, which no command prints.
const MARK: &str = "\u{1}typed";

/// Types the commands in this folder. Stops after a failed command, unless the next one prints its exit status.
pub async fn type_in(page: &Page, folder: &Path, deadline: Duration) -> Result<PageOutput> {
    let commands = page.commands();
    std::fs::write(folder.join(".commands"), script(&commands))?;
    let launch = Launch::new("bash", "/bin/bash").arg(".commands").folder(folder);
    Ok(output(&commands, &run(launch, deadline).await?.stdout))
}

fn script(commands: &[Command]) -> String {
    let mut text = String::from(". target/dev/env\nexec 2>&1\n__as() { return $1; }\n__last=0\n");
    for (command, next) in commands.iter().zip(commands.iter().skip(1).map(Some).chain([None])) {
        let may_fail = next.is_some_and(|next| next.text.contains("$?"));
        // The command sees the exit status of the one before it.
        let _ = writeln!(text, "__as $__last\n{}\n__last=$?\nprintf '{MARK} %s\\n' $__last", command.text);
        if !may_fail {
            text.push_str("[ $__last = 0 ] || exit\n");
        }
    }
    text
}

fn output(commands: &[Command], printed: &str) -> PageOutput {
    let mut page_output = PageOutput::default();
    let mut rest = printed;
    for (at, command) in commands.iter().enumerate() {
        let Some((output, behind)) = rest.split_once(MARK) else {
            page_output.complaint =
                Some(format!("{}: `{}` ended the shell:\n{rest}", command.line, command.text));
            break;
        };
        let (status, behind) = behind.split_once('\n').unwrap_or((behind, ""));
        let may_fail = commands.get(at + 1).is_some_and(|next| next.text.contains("$?"));
        if status.trim() != "0" && !may_fail {
            page_output.complaint =
                Some(format!("{}: `{}` ended with{status}:\n{output}", command.line, command.text));
            break;
        }
        page_output.outputs.push(output.to_owned());
        rest = behind;
    }
    page_output
}
