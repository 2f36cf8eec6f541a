//! Counts tests, rows and pairs from the output of the test runner.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Every test that ran, and whether it passed. Pairs are one test, which prints how many of them ran and failed.
#[derive(Default)]
pub struct Tally {
    tests: BTreeMap<String, bool>,
    pairs: usize,
    pair_violations: usize,
}

impl Tally {
    /// Reads a line of nextest (`PASS [  1.2s] … kills::row_19_…`) or of `cargo test` (`test … ... ok`).
    pub fn add_line(&mut self, line: &str) {
        let plain = without_colours(line);
        if let Some((pairs, violations)) = pair_counts(&plain) {
            (self.pairs, self.pair_violations) = (pairs, violations);
        }
        let words: Vec<&str> = plain.split_whitespace().collect();
        let (passed, name) = match words.as_slice() {
            ["PASS", .., name] => (true, *name),
            ["FAIL" | "TIMEOUT" | "SIGKILL" | "SIGABRT" | "LEAK", .., name] => (false, *name),
            ["test", name, "...", verdict @ ("ok" | "FAILED")] => (*verdict == "ok", *name),
            _ => return,
        };
        let test = name.rsplit("::").next().unwrap_or(name);
        // Failures are printed once more at the end: they stay failures.
        self.tests.entry(test.to_owned()).and_modify(|before| *before &= passed).or_insert(passed);
    }

    /// Returns whether a test passed; none if it did not run.
    pub fn passed(&self, test: &str) -> Option<bool> {
        self.tests.get(test).copied()
    }

    /// Returns `19` of `row_19_killed_before_…` and of `d2_row_19_…`; none for other names.
    fn row(test: &str) -> Option<u32> {
        let mut words = test.split('_').skip_while(|word| *word != "row");
        words.nth(1)?.parse().ok()
    }

    fn by_row(&self) -> BTreeMap<u32, bool> {
        let mut rows = BTreeMap::new();
        for (test, passed) in &self.tests {
            if let Some(row) = Self::row(test) {
                *rows.entry(row).or_insert(true) &= passed;
            }
        }
        rows
    }

    /// Counts rows that failed, pairs that failed, and other tests that failed.
    pub fn violations(&self) -> usize {
        let rows = self.by_row().values().filter(|passed| !**passed).count();
        let others = self.tests.iter().filter(|(test, passed)| Self::row(test).is_none() && !**passed);
        let others = others.map(|(test, _)| if is_pairs(test) { self.pair_violations.max(1) } else { 1 });
        rows + others.sum::<usize>()
    }

    pub fn json(&self) -> Value {
        let rows = self.by_row();
        let tests: Vec<Value> =
            self.tests.iter().map(|(name, passed)| json!({"name": name, "passed": passed})).collect();
        json!({
            "rows": rows.len(),
            "passed": rows.values().filter(|passed| **passed).count(),
            "pairs": self.pairs,
            "violations": self.violations(),
            "tests": tests,
        })
    }

    pub fn table(&self) -> String {
        let line = |(test, passed): (&String, &bool)| {
            format!("{} {test}", if *passed { "passed" } else { "FAILED" })
        };
        self.tests.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn is_pairs(test: &str) -> bool {
    test.starts_with("row_pairs")
}

/// Reads `pairs: 200, violations: 3`, which the test of the pairs prints when it ends.
fn pair_counts(line: &str) -> Option<(usize, usize)> {
    let (pairs, violations) = line.trim().strip_prefix("pairs: ")?.split_once(", violations: ")?;
    Some((pairs.parse().ok()?, violations.parse().ok()?))
}

fn without_colours(line: &str) -> String {
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
    use serde_json::json;

    use super::Tally;

    #[test]
    fn every_test_is_named_rows_are_counted_once_and_a_failure_stays_one() {
        let mut tally = Tally::default();
        for line in [
            "\u{1b}[32m        PASS\u{1b}[0m [  17.992s] ( 1/28) brokkr-e2e::faults kills::row_19_killed",
            "        PASS [   3.0s] ( 2/28) brokkr-e2e::faults lists::row_35_half",
            "        FAIL [   3.0s] ( 3/28) brokkr-e2e::faults lists::row_35_namespace",
            "        PASS [   3.0s] ( 3/28) brokkr-e2e::faults refusals::d2_row_38_a_server_that_fails",
            "        FAIL [   3.0s] ( 4/28) brokkr-e2e::faults pairs::row_pairs_by_seed",
            "    pairs: 180, violations: 3",
            "test kills::row_22_killed ... ok",
            "        PASS [   3.0s] ( 5/28) brokkr-broker::broker a4_sequence_ids_grow",
            "     Summary [ 200 s] 4 tests run: 2 passed, 2 failed",
        ] {
            tally.add_line(line);
        }
        let report = tally.json();
        assert_eq!(
            json!([report["rows"], report["passed"], report["pairs"], report["violations"]]),
            json!([4, 3, 180, 4])
        );
        assert_eq!(report["tests"].as_array().map(Vec::len), Some(7), "{report}");
        assert_eq!(tally.passed("row_35_namespace"), Some(false));
        assert_eq!(tally.passed("d2_row_38_a_server_that_fails"), Some(true));
        assert_eq!(tally.passed("row_36_never_ran"), None);
    }
}
