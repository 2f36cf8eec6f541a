//! What a CI system shows beside its job, in Markdown.

use super::text::clean;
use crate::failure::Failure;

/// What was done, and what went wrong if something did.
pub fn summary(done: &str, failure: Option<&Failure>) -> String {
    let mut lines = Vec::new();
    match failure {
        None => lines.push(format!("✔ {}", code_free(done))),
        Some(failure) => {
            lines.push(format!("✖ **{}**", code_free(&failure.what)));
            lines.push(String::new());
            lines.push(code_free(done));
            if !failure.lines.is_empty() {
                lines.push(String::new());
                lines.push("```".to_owned());
                lines.extend(failure.lines.iter().map(|line| clean(line).replace("```", "'''")));
                lines.push("```".to_owned());
            }
            if let Some(next) = &failure.next {
                lines.push(format!("Next: {}", code_free(next)));
            }
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Text that stays text: reported words must not become links or pictures on the page of a job.
fn code_free(text: &str) -> String {
    clean(text).replace('\\', "\\\\").replace('<', "&lt;").replace('[', "\\[").replace('!', "\\!")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_summary_tells_what_failed_and_cannot_be_steered_by_it() {
        let failure = Failure::new(Exit::Failed, "42 failed on 1 of 2 agents")
            .line("why eu-1: ```![x](https://evil)")
            .next("brokkr why web");
        insta::assert_snapshot!(format!(
            "{}---\n{}",
            summary("stack web: submitted as 42", None),
            summary("stack web: submitted as 42 <b>", Some(&failure))
        ));
    }
}
