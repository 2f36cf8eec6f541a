//! Compares the promises with the tests that prove them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::promises::Promise;

/// The tests that prove each promise, by its id.
pub type Proofs = BTreeMap<String, Vec<String>>;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// The number of promises with a test.
    pub proven: usize,
    /// Planned promises without a test, which is right.
    pub planned: Vec<&'a str>,
    /// Promises without a test that are not planned.
    pub open: Vec<&'a str>,
    /// Promises that have a test although they are listed as planned.
    pub planned_but_proven: Vec<&'a str>,
    /// Promises that are listed more than once, for instance as planned and as given.
    pub repeated: Vec<&'a str>,
}

impl<'a> Verdict<'a> {
    pub fn of(promises: &'a [Promise], proofs: &Proofs) -> Self {
        let mut verdict = Self::default();
        let mut listed = BTreeSet::new();
        for promise in promises {
            let id = promise.id.as_str();
            if !listed.insert(id) {
                verdict.repeated.push(id);
                continue;
            }
            let is_proven = proofs.contains_key(id);
            verdict.proven += usize::from(is_proven);
            match (promise.planned, is_proven) {
                (true, true) => verdict.planned_but_proven.push(id),
                (true, false) => verdict.planned.push(id),
                (false, true) => {}
                (false, false) => verdict.open.push(id),
            }
        }
        verdict
    }

    /// Returns what keeps the command from succeeding, one line each.
    pub fn problems(&self) -> Vec<String> {
        let problems = [
            ("no test proves", &self.open),
            ("listed as planned, but proven by a test", &self.planned_but_proven),
            ("listed more than once", &self.repeated),
        ];
        let found = problems.into_iter().filter(|(_, ids)| !ids.is_empty());
        found.map(|(what, ids)| format!("{what}: {}", ids.join(" "))).collect()
    }

    pub fn json(&self, promises: usize) -> Value {
        json!({
            "promises": promises,
            "proven": self.proven,
            "planned": self.planned,
            "open": self.open,
            "planned_but_proven": self.planned_but_proven,
            "repeated": self.repeated,
        })
    }
}

#[cfg(test)]
mod judging {
    use super::super::promises;
    use super::{Proofs, Verdict};

    // The ids use letters that no promise has, because this file is searched for tests as well.
    const DOCUMENT: &str =
        "## X. One\n| X1 | One. |\n| X2 | Two. |\n## Planned\n| Y1 | Three. |\n| Y2 | Four. |\n";

    fn proofs(ids: &[&str]) -> Proofs {
        ids.iter().map(|id| ((*id).to_owned(), vec!["test".to_owned()])).collect()
    }

    fn problems(document: &str, proven: &[&str]) -> Vec<String> {
        Verdict::of(&promises::read(document), &proofs(proven)).problems()
    }

    #[test]
    fn only_planned_promises_may_be_without_a_test() {
        assert_eq!(problems(DOCUMENT, &["X1", "X2"]), Vec::<String>::new());
        assert_eq!(problems(DOCUMENT, &["X1"]), ["no test proves: X2"]);
        assert_eq!(problems(DOCUMENT, &[]), ["no test proves: X1 X2"]);
    }

    #[test]
    fn a_planned_promise_with_a_test_has_to_leave_the_list() {
        let expected = ["listed as planned, but proven by a test: Y1"];
        assert_eq!(problems(DOCUMENT, &["X1", "X2", "Y1"]), expected);
    }

    #[test]
    fn a_promise_is_listed_once() {
        let twice = format!("{DOCUMENT}| X1 | One. |\n");
        assert_eq!(problems(&twice, &["X1", "X2"]), ["listed more than once: X1"]);
    }

    #[test]
    fn planned_promises_are_counted_apart() {
        let promises = promises::read(DOCUMENT);
        let verdict = Verdict::of(&promises, &proofs(&["X1"]));
        let json = verdict.json(promises.len());
        assert_eq!(json["promises"], 4);
        assert_eq!(json["proven"], 1);
        assert_eq!(json["planned"], serde_json::json!(["Y1", "Y2"]));
        assert_eq!(json["open"], serde_json::json!(["X2"]));
    }
}
