//! Decides whether tests have found a bug. Any failure is not enough: a test that runs into its deadline, or fails for
//! another reason than the bug, has not found it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::commands::faults::output::{Line, TestEnd, function, parse, without_colours};

/// A test that has to fail, and what its failure has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finder {
    pub test: String,
    /// Parts of the message of the failure; all are required.
    pub messages: Vec<String>,
}

/// How each test ended, and what the failed ones printed.
#[derive(Default)]
pub struct Findings {
    ends: BTreeMap<String, TestEnd>,
    outputs: BTreeMap<String, Vec<String>>,
    /// The failed test with the output that is being read.
    current: Option<String>,
}

impl Findings {
    /// Reads a line. The test runner prints the output of a failed test after a line with its name.
    pub fn add_line(&mut self, line: &str) {
        if let Some(Line::Test { name, end }) = parse(line) {
            let before = self.ends.entry(name.clone()).or_insert(end);
            *before = (*before).max(end);
            self.current = (end == TestEnd::Failed).then_some(name);
            return;
        }
        let plain = without_colours(line);
        // The heading of `cargo test`.
        if let ["----", path, "stdout", "----"] = plain.split_whitespace().collect::<Vec<_>>()[..] {
            self.current = Some(function(path).to_owned());
        } else if let Some(test) = &self.current {
            self.outputs.entry(test.clone()).or_default().push(plain);
        }
    }

    /// Returns why a test has not found the bug; none if it has.
    pub fn missed_by(&self, finder: &Finder) -> Result<Option<String>> {
        let test = &finder.test;
        Ok(match self.ends.get(test).with_context(|| format!("the test {test} did not run"))? {
            TestEnd::Passed => Some(format!("{test}: it passed")),
            TestEnd::Stopped => Some(format!("{test}: it was ended by a deadline or a signal")),
            TestEnd::Failed => {
                let failure = self.failure(test).join("\n");
                let missing = finder.messages.iter().find(|message| !failure.contains(message.as_str()));
                missing.map(|message| format!("{test}: it failed, but not with \"{message}\""))
            }
        })
    }

    /// Returns those of the violations that no failed test has printed. A violation is the beginning of a line after
    /// `violation: `.
    pub fn missing<'a>(&self, violations: &'a [String]) -> Vec<&'a str> {
        let is_printed = |violation: &str| {
            let mut printed = self.outputs.values().flatten();
            printed.any(|line| {
                line.trim_start().strip_prefix("violation: ").is_some_and(|rest| rest.starts_with(violation))
            })
        };
        violations.iter().map(String::as_str).filter(|violation| !is_printed(violation)).collect()
    }

    /// Returns the output of a test from its panic or its error on. What it printed before is no message of the failure.
    fn failure(&self, test: &str) -> &[String] {
        let output = self.outputs.get(test).map_or(&[][..], Vec::as_slice);
        let begins =
            |line: &String| line.contains("panicked at ") || line.trim_start().starts_with("Error: ");
        output.iter().position(begins).map_or(&[], |first| &output[first..])
    }
}

#[cfg(test)]
mod tests {
    use super::{Finder, Findings};

    const NEXTEST: [&str; 12] = [
        "        PASS [   1.0s] (1/3) brokkr-e2e::faults kills::row_19_one",
        "        FAIL [   2.0s] (2/3) brokkr-e2e::faults kills::row_21_two",
        "     TIMEOUT [ 360.0s] (3/3) brokkr-e2e::faults kills::row_22_three",
        "     Summary [ 363.0s] 3 tests run: 1 passed, 1 failed, 1 timed out",
        "\u{1b}[31m        FAIL\u{1b}[0m [   2.0s] (2/3) brokkr-e2e::faults kills::\u{1b}[1mrow_21_two\u{1b}[0m",
        "  stdout ───",
        "    an orphan is left, printed before",
        "    violation: GET /x × other: read secret-1",
        "  stderr ───",
        "    thread 'kills::row_21_two' panicked at crates/e2e/tests/faults/kills.rs:50:5:",
        "    S9: the same object, not another one",
        "     TIMEOUT [ 360.0s] (3/3) brokkr-e2e::faults kills::row_22_three",
    ];

    fn read(lines: &[&str]) -> Findings {
        let mut findings = Findings::default();
        lines.iter().for_each(|line| findings.add_line(line));
        findings
    }

    fn missed(findings: &Findings, test: &str, message: &str) -> Option<String> {
        let finder = Finder { test: test.into(), messages: vec![message.into()] };
        findings.missed_by(&finder).expect("a test that ran")
    }

    #[test]
    fn only_a_failure_with_the_expected_message_finds_a_bug() {
        let findings = read(&NEXTEST);
        assert_eq!(missed(&findings, "row_21_two", "S9: the same object"), None);
        let other = missed(&findings, "row_21_two", "S8").expect("another message");
        assert!(other.contains("failed, but not with \"S8\""), "{other}");
        let before = missed(&findings, "row_21_two", "an orphan is left").expect("not of the failure");
        assert!(before.contains("but not with"), "{before}");
        assert!(missed(&findings, "row_19_one", "S9").expect("passed").contains("it passed"));
        assert!(missed(&findings, "row_22_three", "S9").expect("stopped").contains("a deadline"));
        let absent = Finder { test: "row_36_absent".into(), messages: vec![] };
        findings.missed_by(&absent).expect_err("it did not run");
    }

    #[test]
    fn an_error_that_a_test_returns_is_a_message_and_every_message_is_required() {
        let findings = read(&[
            "        FAIL [   2.0s] (1/1) brokkr-e2e::broker_faults leaders::row_16_one",
            "    Error: 2 violations:",
            "    S12: the report x was counted 2 times",
        ]);
        let finder = |messages: &[&str]| Finder {
            test: "row_16_one".into(),
            messages: messages.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(findings.missed_by(&finder(&["S12", "counted 2 times"])).expect("ran"), None);
        assert!(findings.missed_by(&finder(&["S12", "S13"])).expect("ran").is_some());
    }

    #[test]
    fn the_output_of_cargo_test_is_read_as_well() {
        let findings = read(&[
            "test kills::row_21_two ... FAILED",
            "test kills::row_19_one ... ok",
            "---- kills::row_21_two stdout ----",
            "thread 'kills::row_21_two' panicked at crates/e2e/tests/faults/kills.rs:50:5:",
            "S9: the same object, not another one",
        ]);
        assert_eq!(missed(&findings, "row_21_two", "S9"), None);
    }

    #[test]
    fn violations_count_only_if_a_failed_test_printed_them() {
        let findings = read(&NEXTEST);
        let violations = ["GET /x × other: read".to_owned(), "GET /x × own: read".to_owned()];
        assert_eq!(findings.missing(&violations), ["GET /x × own: read"]);
        let passed = read(&["        PASS [   1.0s] (1/1) a::b c::d", "    violation: GET /x × other: read"]);
        assert_eq!(passed.missing(&violations[..1]), ["GET /x × other: read"]);
    }
}
