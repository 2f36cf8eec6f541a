//! Reads the output of the test runner, nextest or `cargo test`.

/// How a test ended, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestEnd {
    Passed,
    /// The test itself has failed: a panic or a returned error.
    Failed,
    /// It was ended from outside, by a deadline or a signal, or it left processes behind.
    Stopped,
}

/// A line that says something about a test or about a pair of faults.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Test {
        name: String,
        end: TestEnd,
    },
    /// `pair 3: met 2 of 2 faults`, printed when a pair ends.
    Pair {
        number: usize,
        met: usize,
    },
    /// `pair 3: failed`
    PairFailed {
        number: usize,
    },
}

/// Reads a line of nextest (`PASS [  1.2s] … kills::row_19_…`), of `cargo test` (`test … ... ok`), or of a test of pairs.
pub fn parse(line: &str) -> Option<Line> {
    let plain = without_colours(line);
    let words: Vec<&str> = plain.split_whitespace().collect();
    let (end, name) = match words.as_slice() {
        ["PASS", .., name] => (TestEnd::Passed, *name),
        ["FAIL", .., name] => (TestEnd::Failed, *name),
        ["TIMEOUT" | "ABORT" | "LEAK" | "LEAK-FAIL", .., name] => (TestEnd::Stopped, *name),
        [signal, time, .., name] if signal.starts_with("SIG") && time.starts_with('[') => {
            (TestEnd::Stopped, *name)
        }
        ["test", name, "...", "ok"] => (TestEnd::Passed, *name),
        ["test", name, "...", "FAILED"] => (TestEnd::Failed, *name),
        ["pair", number, "met", met, "of", "2", "faults"] => {
            return Some(Line::Pair { number: pair_number(number)?, met: met.parse().ok()? });
        }
        ["pair", number, "failed"] => return Some(Line::PairFailed { number: pair_number(number)? }),
        _ => return None,
    };
    Some(Line::Test { name: function(name).to_owned(), end })
}

/// Returns the name of the test function of a path.
pub fn function(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

fn pair_number(word: &str) -> Option<usize> {
    word.strip_suffix(':')?.parse().ok()
}

pub fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{Line, TestEnd, parse};

    #[test]
    fn a_deadline_or_a_signal_is_not_a_failure_of_the_test_itself() {
        let end = |line: &str| match parse(line) {
            Some(Line::Test { end, .. }) => Some(end),
            _ => None,
        };
        assert_eq!(end("        PASS [   3.0s] (1/2) brokkr-e2e::faults a::one"), Some(TestEnd::Passed));
        assert_eq!(end("        FAIL [   3.0s] (1/2) brokkr-e2e::faults a::one"), Some(TestEnd::Failed));
        assert_eq!(end("     TIMEOUT [ 360.0s] (1/2) brokkr-e2e::faults a::one"), Some(TestEnd::Stopped));
        assert_eq!(end("     SIGSEGV [   3.0s] (1/2) brokkr-e2e::faults a::one"), Some(TestEnd::Stopped));
        assert_eq!(end("test a::one ... FAILED"), Some(TestEnd::Failed));
        assert_eq!(end("  SIGKILL was sent to the agent"), None);
        assert_eq!(end("     Summary [ 200 s] 4 tests run: 2 passed, 2 failed"), None);
    }

    #[test]
    fn the_result_of_a_pair_is_read_and_its_beginning_is_not() {
        assert_eq!(parse("    pair 12: met 1 of 2 faults"), Some(Line::Pair { number: 12, met: 1 }));
        assert_eq!(parse("pair 12: failed"), Some(Line::PairFailed { number: 12 }));
        assert_eq!(parse("pair 12: conflict + unavailable + Kill"), None);
    }
}
