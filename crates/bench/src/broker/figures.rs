//! Numbers with their targets and the numbers of the minimal server, as a table or as JSON.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// The target of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

#[derive(Debug)]
struct Figure {
    key: String,
    measured: f64,
    /// The numbers of which `measured` is the median or the highest; empty if it was measured once.
    rounds: Vec<f64>,
    bare: Option<f64>,
    wanted: Option<Target>,
    note: String,
}

/// The numbers, in the order of measurement.
#[derive(Debug)]
pub struct Figures {
    rows: Vec<Figure>,
    cores: usize,
    files: u64,
    load: [f64; 2],
    /// The command-line options.
    settings: String,
}

impl Figures {
    pub fn begin(files: u64, settings: String) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { rows: Vec::new(), cores, files, load: [load(), load()], settings }
    }

    pub fn end(&mut self) {
        self.load[1] = load();
    }

    /// Returns the limit of open files.
    pub fn files(&self) -> usize {
        usize::try_from(self.files).unwrap_or(usize::MAX)
    }

    /// Adds a number and prints it at once, because a whole run takes a long time.
    pub fn add(&mut self, key: &str, measured: f64) -> Row<'_> {
        eprintln!("  {key} {measured:.4}");
        let key = key.to_owned();
        let rounds = Vec::new();
        self.rows.push(Figure { key, measured, rounds, bare: None, wanted: None, note: String::new() });
        let last = self.rows.len() - 1;
        Row(&mut self.rows[last])
    }

    /// Adds the median of several rounds, and keeps all of them.
    pub fn add_rounds(&mut self, key: &str, rounds: &[f64]) -> Row<'_> {
        let row = self.add(key, median(rounds.to_vec()));
        row.0.rounds = rounds.to_vec();
        row
    }

    /// Adds the highest of several rounds, and keeps all of them.
    pub fn add_worst(&mut self, key: &str, rounds: &[f64]) -> Row<'_> {
        let row = self.add(key, rounds.iter().copied().fold(f64::NAN, f64::max));
        row.0.rounds = rounds.to_vec();
        row
    }

    /// Adds the median of the ratios of rounds that were measured beside each other.
    pub fn add_ratios(&mut self, key: &str, rounds: &[f64], bare: &[f64]) -> Row<'_> {
        let ratios: Vec<f64> = rounds.iter().zip(bare).map(|(measured, bare)| measured / bare).collect();
        self.add_rounds(key, &ratios)
    }

    /// Returns one object: the numbers by name, their targets, spreads and rounds, the minimal server's numbers, notes,
    /// and what was measured where.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let of = |value: &dyn Fn(&Figure) -> Option<Value>| {
            let pairs = self.rows.iter().filter_map(|row| Some((row.key.clone(), value(row)?)));
            pairs.collect::<Map<String, Value>>()
        };
        let mut document = of(&|row| Some(json!(rounded(row.measured))));
        document.insert("wanted".into(), of(&|row| Some(json!(row.wanted?.to_string()))).into());
        document.insert("bare".into(), of(&|row| Some(json!(rounded(row.bare?)))).into());
        document.insert("notes".into(), of(&|row| (!row.note.is_empty()).then(|| json!(row.note))).into());
        let several = |row: &Figure| (row.rounds.len() > 1).then(|| row.rounds.clone());
        let spread = |row: &Figure| {
            let sorted = sorted(several(row)?);
            Some(json!({"min": rounded(*sorted.first()?), "max": rounded(*sorted.last()?)}))
        };
        document.insert("spread".into(), of(&spread).into());
        let rounds = |row: &Figure| Some(json!(several(row)?.into_iter().map(rounded).collect::<Vec<_>>()));
        document.insert("rounds".into(), of(&rounds).into());
        let machine = json!({"cores": self.cores, "files": self.files, "load": self.load});
        document.insert("machine".into(), machine);
        document.insert("settings".into(), json!(self.settings));
        document.insert("commit".into(), json!(commit()));
        document.insert("measured_at".into(), json!(jiff::Timestamp::now().to_string()));
        Value::Object(document)
    }

    /// Returns the names of the numbers that miss their targets.
    pub fn missed(&self) -> Vec<&str> {
        let is_missed = |row: &&Figure| row.wanted.is_some_and(|wanted| !wanted.holds(row.measured));
        self.rows.iter().filter(is_missed).map(|row| row.key.as_str()).collect()
    }

    /// Writes the JSON object into a folder, in a file with what was measured in its name.
    pub fn store(&self, folder: &Path, what: &str) -> Result<()> {
        let day = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        let path = folder.join(format!("{day}-{}-{what}.json", commit()));
        let text = serde_json::to_string_pretty(&self.to_json())? + "\n";
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns one line for each number.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut table = format!(
            "{} cores, {} files per process, load {:.1} → {:.1}\n{:<28} {:>12} {:>12} {:>10}\n",
            self.cores, self.files, self.load[0], self.load[1], "figure", "measured", "bare", "wanted"
        );
        for row in &self.rows {
            let bare = row.bare.map_or_else(String::new, |bare| format!("{bare:.4}"));
            let wanted = row.wanted.map_or_else(String::new, |wanted| wanted.to_string());
            let mark = match row.wanted {
                Some(wanted) if wanted.holds(row.measured) => "✓",
                Some(_) => "✗",
                None => " ",
            };
            let spread = match sorted(row.rounds.clone())[..] {
                [min, .., max] => format!("[{min:.2} … {max:.2}] "),
                _ => String::new(),
            };
            let _ = writeln!(
                table,
                "{:<28} {:>12.4} {bare:>12} {wanted:>10} {mark} {spread}{}",
                row.key, row.measured, row.note
            );
        }
        table
    }
}

/// A number that was just added.
pub struct Row<'a>(&'a mut Figure);

impl Row<'_> {
    pub fn bare(self, bare: f64) -> Self {
        self.0.bare = Some(bare);
        self
    }

    pub fn at_most(self, most: f64) -> Self {
        self.0.wanted = Some(Target::AtMost(most));
        self
    }

    pub fn at_least(self, least: f64) -> Self {
        self.0.wanted = Some(Target::AtLeast(least));
        self
    }

    pub fn note(self, note: impl Into<String>) -> Self {
        self.0.note = note.into();
        self
    }
}

fn rounded(value: f64) -> f64 {
    (value * 100_000.0).round() / 100_000.0
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns the commit that is measured; empty outside a clone.
fn commit() -> String {
    let described = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    described
        .map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the median.
pub fn median(values: Vec<f64>) -> f64 {
    let values = sorted(values);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_target_and_the_number_of_the_minimal_server() {
        let mut figures = Figures::begin(1000, String::new());
        figures.add("poll_cpu_ratio", 1.2).at_most(1.25).bare(1.0).note("a note");
        figures.add("submit_ratio", 0.4).at_least(0.5);
        let document = figures.to_json();
        assert_eq!(document["poll_cpu_ratio"], 1.2);
        assert_eq!(document["wanted"]["submit_ratio"], "≥ 0.5");
        assert_eq!(document["bare"], json!({"poll_cpu_ratio": 1.0}));
        assert_eq!(figures.missed(), ["submit_ratio"]);
        figures.add_ratios("report_ratio", &[2.0, 6.0, 3.0], &[4.0, 4.0, 4.0]);
        let document = figures.to_json();
        assert_eq!(document["report_ratio"], 0.75);
        assert_eq!(document["spread"], json!({"report_ratio": {"min": 0.5, "max": 1.5}}));
        assert_eq!(document["rounds"]["report_ratio"], json!([0.5, 1.5, 0.75]));
        figures.add_worst("longest_task_ms", &[90.0, 210.0, 80.0]).at_most(200.0);
        assert_eq!(figures.missed(), ["submit_ratio", "longest_task_ms"]);
        let table = figures.to_table();
        assert!(table.contains("✓ a note") && table.contains('✗'), "{table}");
    }
}
