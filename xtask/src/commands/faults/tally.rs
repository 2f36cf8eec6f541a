//! What the test runner said: which rows ran, which held.

use std::collections::BTreeMap;

/// Every test by name, and whether it passed. Pairs are one test, whose own words count its violations.
#[derive(Default)]
pub struct Tally {
    tests: BTreeMap<String, bool>,
    pair_violations: Option<usize>,
}

impl Tally {
    /// Takes in a line of nextest (`PASS [  1.2s] … kills::row_19_…`) or of `cargo test` (`test … ... ok`).
    pub fn hear(&mut self, line: &str) {
        let plain = without_colours(line);
        let words: Vec<&str> = plain.split_whitespace().collect();
        if let Some(count) = plain.split("violations: ").nth(1).filter(|_| plain.contains("pairs: ")) {
            self.pair_violations = count.trim().parse().ok();
        }
        let (verdict, name) = match words.as_slice() {
            ["PASS", .., name] => (true, *name),
            ["FAIL" | "TIMEOUT" | "SIGKILL" | "SIGABRT" | "LEAK", .., name] => (false, *name),
            ["test", name, "...", verdict] => (*verdict == "ok", *name),
            _ => return,
        };
        if let Some(test) = name.rsplit("::").next().filter(|test| test.starts_with("row_")) {
            // Failures are shown once more at the end: they stay failures.
            self.tests.entry(test.to_owned()).and_modify(|passed| *passed &= verdict).or_insert(verdict);
        }
    }

    /// `19`, of `row_19_killed_before_…`; none for the pairs.
    fn row(test: &str) -> Option<u32> {
        test.split('_').nth(1)?.parse().ok()
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

    pub fn rows(&self) -> usize {
        self.by_row().len()
    }

    pub fn passed(&self) -> usize {
        self.by_row().values().filter(|passed| **passed).count()
    }

    pub fn failed_tests(&self) -> Vec<&str> {
        self.tests.iter().filter(|(_, passed)| !**passed).map(|(test, _)| test.as_str()).collect()
    }

    /// Rows that did not hold, and pairs that did not.
    pub fn violations(&self) -> usize {
        let rows = self.rows() - self.passed();
        let pairs_failed = self.tests.iter().any(|(test, passed)| Self::row(test).is_none() && !passed);
        rows + if pairs_failed { self.pair_violations.unwrap_or(1).max(1) } else { 0 }
    }

    pub fn table(&self) -> String {
        let line = |(test, passed): (&String, &bool)| {
            format!("{} {test}", if *passed { "held  " } else { "FAILED" })
        };
        self.tests.iter().map(line).collect::<Vec<_>>().join("\n")
    }
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
mod hearing {
    use super::Tally;

    #[test]
    fn rows_are_counted_once_and_a_failure_stays_one() {
        let mut tally = Tally::default();
        for line in [
            "\u{1b}[32m        PASS\u{1b}[0m [  17.992s] ( 1/28) brokkr-e2e::faults kills::row_19_killed",
            "        PASS [   3.0s] ( 2/28) brokkr-e2e::faults lists::row_35_half",
            "        FAIL [   3.0s] ( 3/28) brokkr-e2e::faults lists::row_35_namespace",
            "        FAIL [   3.0s] ( 4/28) brokkr-e2e::faults pairs::row_pairs_by_seed",
            "    pairs: 200, violations: 3",
            "test kills::row_22_killed ... ok",
            "     Summary [ 200 s] 4 tests run: 2 passed, 2 failed",
        ] {
            tally.hear(line);
        }
        assert_eq!((tally.rows(), tally.passed(), tally.violations()), (3, 2, 4));
        assert_eq!(tally.failed_tests(), ["row_35_namespace", "row_pairs_by_seed"]);
    }
}
