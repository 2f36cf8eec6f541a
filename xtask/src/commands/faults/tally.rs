//! Counts tests, rows and pairs from the output of the test runner.
//!
//! Every test counts, also one that belongs to no row. A pair counts only if it ran, and is counted by how many of its two
//! faults were met: a fault that was injected and met by no request proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::output::{Line, TestEnd, parse};

/// Every test that ran and how it ended, and every pair of faults that ran.
#[derive(Default)]
pub struct Tally {
    tests: BTreeMap<String, TestEnd>,
    /// How many of the two faults of a pair were met, by the number of the pair.
    pairs: BTreeMap<usize, usize>,
    failed_pairs: BTreeSet<usize>,
}

impl Tally {
    pub fn add_line(&mut self, line: &str) {
        match parse(line) {
            // Failures are printed once more at the end: they stay failures.
            Some(Line::Test { name, end }) => {
                let before = self.tests.entry(name).or_insert(end);
                *before = (*before).max(end);
            }
            Some(Line::Pair { number, met }) => {
                self.pairs.insert(number, met);
            }
            Some(Line::PairFailed { number }) => {
                self.failed_pairs.insert(number);
            }
            None => {}
        }
    }

    /// Returns the number of tests that ran.
    pub fn tests(&self) -> usize {
        self.tests.len()
    }

    /// Returns the names of the tests that failed.
    pub fn failed(&self) -> Vec<&str> {
        let failed = self.tests.iter().filter(|(_, end)| **end != TestEnd::Passed);
        failed.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns `19` of `row_19_killed_before_…` and of `d2_row_19_…`; none for other names.
    fn row(test: &str) -> Option<u32> {
        let mut words = test.split('_').skip_while(|word| *word != "row");
        words.nth(1)?.parse().ok()
    }

    fn by_row(&self) -> BTreeMap<u32, bool> {
        let mut rows = BTreeMap::new();
        for (test, end) in &self.tests {
            if let Some(row) = Self::row(test) {
                *rows.entry(row).or_insert(true) &= *end == TestEnd::Passed;
            }
        }
        rows
    }

    fn pairs_that_met(&self, faults: usize) -> usize {
        self.pairs.values().filter(|met| **met == faults).count()
    }

    /// Counts rows that failed, pairs that failed, and other tests that failed.
    pub fn violations(&self) -> usize {
        let rows = self.by_row().values().filter(|passed| !**passed).count();
        let others =
            self.tests.iter().filter(|(test, end)| Self::row(test).is_none() && **end != TestEnd::Passed);
        // A test of pairs that was ended from outside names no failed pair.
        let violations =
            others.map(|(test, _)| if is_pairs(test) { self.failed_pairs.len().max(1) } else { 1 });
        rows + violations.sum::<usize>()
    }

    /// Returns the counts; `asked` is the number of pairs that should have run.
    pub fn json(&self, asked: usize) -> Value {
        let rows = self.by_row();
        let passed = |end: &TestEnd| *end == TestEnd::Passed;
        let tests: Vec<Value> =
            self.tests.iter().map(|(name, end)| json!({"name": name, "passed": passed(end)})).collect();
        json!({
            "rows": rows.len(),
            "passed": rows.values().filter(|passed| **passed).count(),
            "pairs": self.pairs_that_met(2),
            "pairs_met_one": self.pairs_that_met(1),
            "pairs_met_none": self.pairs_that_met(0),
            "pairs_asked": asked,
            "violations": self.violations(),
            "tests": tests,
        })
    }

    pub fn table(&self) -> String {
        let line = |(test, end): (&String, &TestEnd)| {
            format!("{} {test}", if *end == TestEnd::Passed { "passed" } else { "FAILED" })
        };
        self.tests.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn is_pairs(test: &str) -> bool {
    test.starts_with("row_pairs")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Tally;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add_line(line));
        tally
    }

    #[test]
    fn every_test_is_named_rows_are_counted_once_and_a_failure_stays_one() {
        let tally = tally(&[
            "\u{1b}[32m        PASS\u{1b}[0m [  17.992s] ( 1/28) brokkr-e2e::faults kills::row_19_killed",
            "        PASS [   3.0s] ( 2/28) brokkr-e2e::faults lists::row_35_half",
            "        FAIL [   3.0s] ( 3/28) brokkr-e2e::faults lists::row_35_namespace",
            "        PASS [   3.0s] ( 3/28) brokkr-e2e::faults refusals::d2_row_38_a_server_that_fails",
            "        PASS [   3.0s] ( 4/28) brokkr-e2e::faults keys::killed_at_every_step_of_a_rotation",
            "     TIMEOUT [   3.0s] ( 5/28) brokkr-e2e::faults proxy::the_proxy_carries",
            "test kills::row_22_killed ... ok",
            "     Summary [ 200 s] 4 tests run: 2 passed, 2 failed",
            "        FAIL [   3.0s] ( 3/28) brokkr-e2e::faults lists::row_35_namespace",
        ]);
        let report = tally.json(0);
        assert_eq!(json!([report["rows"], report["passed"], report["violations"]]), json!([4, 3, 2]));
        let names: Vec<_> =
            report["tests"].as_array().into_iter().flatten().map(|test| &test["name"]).collect();
        assert_eq!(names.len(), 7, "{report}");
        assert!(names.contains(&&json!("killed_at_every_step_of_a_rotation")), "{report}");
        assert!(tally.table().contains("FAILED the_proxy_carries"), "{}", tally.table());
    }

    #[test]
    fn only_pairs_that_ran_and_met_both_faults_count_as_pairs() {
        let report = tally(&[
            "    pair 0: conflict + watches freeze",
            "    pair 0: met 2 of 2 faults",
            "    pair 1: met 1 of 2 faults",
            "    pair 2: met 0 of 2 faults",
            "    pair 3: met 2 of 2 faults",
            // Begun, but not ended.
            "    pair 4: conflict + unavailable",
            // The output of a test may be printed twice.
            "    pair 3: met 2 of 2 faults",
            "        PASS [   3.0s] ( 4/28) brokkr-e2e::faults pairs::row_pairs_by_seed",
        ])
        .json(200);
        let counts = ["pairs", "pairs_met_one", "pairs_met_none", "pairs_asked", "violations"];
        assert_eq!(
            counts.map(|count| &report[count]),
            [2, 1, 1, 200, 0].map(|count| json!(count)).each_ref()
        );
    }

    #[test]
    fn every_failed_pair_is_a_violation() {
        let mut lines = vec![
            "        FAIL [   3.0s] ( 4/28) brokkr-e2e::faults pairs::row_pairs_by_seed",
            "    pair 0: met 2 of 2 faults",
            "    pair 0: failed",
            "    pair 7: met 1 of 2 faults",
            "    pair 7: failed",
            "    pair 7: failed",
        ];
        assert_eq!(tally(&lines).violations(), 2);
        lines.truncate(2);
        assert_eq!(tally(&lines).violations(), 1, "a test that was ended from outside");
    }
}
