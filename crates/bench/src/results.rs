//! Numbers by name, each with all its rounds, as a table or as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// The numbers, in the order of measurement.
#[derive(Debug, Default)]
pub struct Results {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    key: String,
    rounds: Vec<f64>,
    note: String,
}

impl Results {
    /// Adds one round of a number and prints it at once, because a whole run takes a long time.
    pub fn add(&mut self, key: &str, value: f64) {
        eprintln!("  {key} {value:.3}");
        match self.rows.iter_mut().find(|row| row.key == key) {
            Some(row) => row.rounds.push(value),
            None => {
                self.rows.push(Row { key: key.to_owned(), rounds: vec![value], note: String::new() });
            }
        }
    }

    /// Adds a note to a number.
    pub fn note(&mut self, key: &str, note: impl Into<String>) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.key == key) {
            row.note = note.into();
        }
    }

    /// Returns the median of a number's rounds.
    #[must_use]
    pub fn median(&self, key: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.key == key).map(|row| median(&row.rounds))
    }

    /// Adds the ratio of a number to the sum of others, if all were measured.
    pub fn add_ratio(&mut self, key: &str, of: &str, to: &[&str]) {
        let to: Option<f64> = to.iter().map(|key| self.median(key)).sum();
        if let (Some(of), Some(to)) = (self.median(of), to) {
            self.add(key, of / to);
        }
    }

    /// Returns one object: the medians by name, and all rounds under the key `rounds`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut document = Map::new();
        for row in &self.rows {
            document.insert(row.key.clone(), json!(rounded(median(&row.rounds))));
        }
        let rounds = self.rows.iter().filter(|row| row.rounds.len() > 1);
        let rounds: Map<String, Value> = rounds
            .map(|row| {
                let values: Vec<f64> = row.rounds.iter().copied().map(rounded).collect();
                (row.key.clone(), json!(values))
            })
            .collect();
        document.insert("rounds".to_owned(), Value::Object(rounds));
        let notes = self.rows.iter().filter(|row| !row.note.is_empty());
        let notes: Map<String, Value> =
            notes.map(|row| (row.key.clone(), Value::String(row.note.clone()))).collect();
        document.insert("notes".to_owned(), Value::Object(notes));
        Value::Object(document)
    }

    /// Returns one line for each number: median, rounds, note.
    #[must_use]
    pub fn to_table(&self) -> String {
        let width = self.rows.iter().map(|row| row.key.len()).max().unwrap_or_default();
        let mut table = String::new();
        for row in &self.rows {
            let _ = write!(table, "{:<width$}  {:>10.3}", row.key, median(&row.rounds));
            if row.rounds.len() > 1 {
                let rounds: Vec<String> = row.rounds.iter().map(|value| format!("{value:.2}")).collect();
                let _ = write!(table, "  [{}]", rounds.join(" "));
            }
            if !row.note.is_empty() {
                let _ = write!(table, "  {}", row.note);
            }
            table.push('\n');
        }
        table
    }
}

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// Returns the value below which this many percent of the measurements are.
#[must_use]
pub fn percentile(measurements: &[f64], percent: usize) -> f64 {
    let mut sorted = measurements.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_are_of_all_rounds() {
        let mut results = Results::default();
        for value in [3.0, 1.0, 2.0] {
            results.add("agent_s", value);
        }
        results.add("bare_s", 1.0);
        results.add("bare_s", 3.0);
        results.add_ratio("agent_over_bare", "agent_s", &["bare_s"]);
        results.add_ratio("agent_over_nobody", "agent_s", &["nobody_s"]);
        let document = results.to_json();
        assert_eq!(document["agent_s"], 2.0);
        assert_eq!(document["agent_over_bare"], 1.0);
        assert!(document.get("agent_over_nobody").is_none());
        assert_eq!(document["rounds"]["agent_s"], json!([3.0, 1.0, 2.0]));
        assert_eq!(percentile(&[5.0, 1.0, 4.0, 2.0, 3.0], 50), 3.0);
    }
}
