//! The summary of a CI job, in Markdown.

use super::text::clean;
use crate::failure::Failure;

/// Returns the summary of an action and its failure.
pub fn summary(done: &str, failure: Option<&Failure>) -> String {
    let mut lines = Vec::new();
    match failure {
        None => lines.push(format!("✔ {}", escaped(done))),
        Some(failure) => {
            lines.push(format!("✖ **{}**", escaped(&failure.what)));
            lines.push(String::new());
            lines.push(escaped(done));
            if !failure.lines.is_empty() {
                lines.push(String::new());
                lines.push("```".to_owned());
                lines.extend(failure.lines.iter().map(|line| clean(line).replace("```", "'''")));
                lines.push("```".to_owned());
            }
            if let Some(next) = &failure.next {
                lines.push(format!("Next: {}", escaped(next)));
            }
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Escapes reported text, so that it does not become links or images.
fn escaped(text: &str) -> String {
    clean(text).replace('\\', "\\\\").replace('<', "&lt;").replace('[', "\\[").replace('!', "\\!")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_summary_says_what_failed_and_escapes_it() {
        let failure = Failure::new(Exit::Failed, "42 failed on 1 of 2 agents")
            .line("why eu-1: ```![x](https://evil)")
            .next("brokkr why web");
        insta::assert_snapshot!(format!(
            "{}---\n{}",
            summary("stack web: submitted as version 42", None),
            summary("stack web: submitted as version 42 <b>", Some(&failure))
        ));
    }
}
