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
use crate::runner::{Tests, Workspace, build_tests};
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

/// The tests of a component, as an expression of the test runner, and the default number of pairs.
struct Matrix {
    tests: &'static str,
    pairs: u32,
}

const AGENT: Matrix = Matrix { tests: "binary(faults)", pairs: 200 };
/// Rows that need no second replica are among the broker's own tests.
const BROKER: Matrix = Matrix { tests: "binary(broker_faults) | binary(broker) & test(::row_)", pairs: 30 };

impl Matrix {
    /// Returns all tests, or those of these rows.
    fn selected(&self, rows: &[u32]) -> String {
        if rows.is_empty() {
            return self.tests.to_owned();
        }
        let rows: Vec<String> = rows.iter().map(|row| format!("test(row_{row:02}_)")).collect();
        format!("({}) & ({})", self.tests, rows.join(" | "))
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
    build_tests()?;
    let selected = matrix.selected(&args.rows);
    let tests = Tests { selection: &["--workspace", "-E", &selected], filters: &[] };
    let mut tally = Tally::default();
    let passed = Workspace::own()?.run_tests(&tests, &environment, |line| {
        eprintln!("{line}");
        tally.add_line(line);
    })?;
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
        assert_eq!(AGENT.selected(&[]), "binary(faults)");
        assert_eq!(BROKER.selected(&[]), "binary(broker_faults) | binary(broker) & test(::row_)");
    }

    #[test]
    fn rows_are_looked_for_in_all_targets() {
        let expected =
            "(binary(broker_faults) | binary(broker) & test(::row_)) & (test(row_05_) | test(row_48_))";
        assert_eq!(BROKER.selected(&[5, 48]), expected);
    }
}
