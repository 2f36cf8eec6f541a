//! `cargo xtask faults`: runs the full fault matrix of the agent or the broker, and checks that the tests find deliberate
//! bugs.
//!
//! ```text
//! faults/output.rs  reads the output of the test runner
//! faults/tally.rs   counts tests, rows and pairs
//! faults/bugs.rs    deliberate bugs as patch files, and the tests that have to find them
//! ```

mod bugs;
mod output;
pub mod tally;

use anyhow::{Result, bail};

use super::engines;
use crate::runner::{Tests, Workspace, build};
use tally::Tally;

/// Run the fault matrix.
#[derive(clap::Subcommand)]
pub enum Args {
    /// Run every row of the agent in full, and random pairs of faults.
    Agent(MatrixArgs),
    /// Run every row of the broker in full, on two replicas, and random pairs of faults.
    Broker(MatrixArgs),
    Bugs(bugs::Args),
}

#[derive(clap::Args)]
pub struct MatrixArgs {
    /// Print the result as JSON, and nothing else to stdout.
    #[arg(long)]
    json: bool,
    /// Replay the random choices of an earlier run, which printed this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Run only these rows, such as 20,26, and no pairs.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<u32>,
    /// Run this many pairs of faults; default 200 for the agent, 30 for the broker.
    #[arg(long)]
    pairs: Option<u32>,
}

/// The test targets with the rows of a component, and the default number of pairs.
struct Matrix {
    parts: &'static [Part],
    pairs: u32,
}

/// A test target, and a part of the names of its tests that belong to the matrix.
struct Part {
    target: &'static str,
    /// None if every test belongs to it.
    filter: Option<&'static str>,
}

const AGENT: Matrix = Matrix { parts: &[Part { target: "faults", filter: None }], pairs: 200 };
/// Rows that need no second replica are among the broker's own tests.
const BROKER: Matrix = Matrix {
    parts: &[
        Part { target: "broker_faults", filter: None },
        Part { target: "broker", filter: Some("::row_") },
    ],
    pairs: 30,
};

impl Matrix {
    /// Returns the selections of one run of the test runner each: all tests of every part, or these rows.
    fn runs(&self, rows: &[u32]) -> Vec<(Vec<&'static str>, Vec<String>)> {
        if rows.is_empty() {
            let run = |part: &Part| {
                (
                    vec!["--workspace", "--test", part.target],
                    part.filter.map(str::to_owned).into_iter().collect(),
                )
            };
            return self.parts.iter().map(run).collect();
        }
        // The test runner fails if a run has no tests, and a row is in one of the parts.
        let targets = self.parts.iter().flat_map(|part| ["--test", part.target]);
        let selection = std::iter::once("--workspace").chain(targets).collect();
        vec![(selection, rows.iter().map(|row| format!("row_{row:02}_")).collect())]
    }
}

pub fn run(args: &Args) -> Result<()> {
    match args {
        Args::Agent(args) => matrix(&AGENT, args),
        Args::Broker(args) => matrix(&BROKER, args),
        Args::Bugs(args) => bugs::run(args),
    }
}

fn matrix(matrix: &Matrix, args: &MatrixArgs) -> Result<()> {
    engines::ensure()?;
    // With rows, no test of pairs is selected.
    let pairs = if args.rows.is_empty() { args.pairs.unwrap_or(matrix.pairs) } else { 0 };
    let mut environment =
        vec![("BROKKR_FAULTS", "all".to_owned()), ("BROKKR_FAULT_PAIRS", pairs.to_string())];
    environment.extend(args.seed.map(|seed| ("BROKKR_SEED", seed.to_string())));
    let (mut tally, mut passed) = (Tally::default(), true);
    for (selection, filters) in matrix.runs(&args.rows) {
        build(&[&["--bins"], selection.as_slice()].concat())?;
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        let tests = Tests { selection: &selection, filters: &filters };
        passed &= Workspace::own()?.run_tests(&tests, &environment, |line| {
            eprintln!("{line}");
            tally.add_line(line);
        })?;
    }
    println!("{}", tally.json(pairs.try_into()?));
    if !args.json {
        println!("{}", tally.table());
    }
    if !passed || tally.violations() > 0 {
        bail!("{} violations", tally.violations());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{AGENT, BROKER};

    #[test]
    fn every_test_of_the_fault_targets_is_selected() {
        for matrix in [AGENT, BROKER] {
            assert_eq!(matrix.runs(&[])[0].1, Vec::<String>::new());
        }
        assert_eq!(BROKER.runs(&[])[1].1, ["::row_"], "among the broker's own tests");
    }

    #[test]
    fn rows_are_looked_for_in_all_targets_at_once() {
        let runs = BROKER.runs(&[5, 48]);
        let [(selection, filters)] = runs.as_slice() else { panic!("{runs:?}") };
        assert_eq!(filters, &["row_05_", "row_48_"]);
        assert!(selection.contains(&"broker_faults") && selection.contains(&"broker"), "{selection:?}");
    }
}
