//! `cargo xtask faults`: runs the full fault matrix of the agent or the broker, and checks that the tests find deliberate
//! bugs.
//!
//! ```text
//! faults/tally.rs   counts tests, rows and pairs from the output of the test runner
//! faults/bugs.rs    deliberate bugs as patch files, and the tests that have to find them
//! ```

mod bugs;
mod tally;

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
    selection: &'static [&'static str],
    pairs: u32,
}

const AGENT: Matrix = Matrix { selection: &["--workspace", "--test", "faults"], pairs: 200 };
/// Rows that need no second replica are among the broker's own tests.
const BROKER: Matrix =
    Matrix { selection: &["--workspace", "--test", "broker_faults", "--test", "broker"], pairs: 30 };

pub fn run(args: &Args) -> Result<()> {
    match args {
        Args::Agent(args) => matrix(&AGENT, args),
        Args::Broker(args) => matrix(&BROKER, args),
        Args::Bugs(args) => bugs::run(args),
    }
}

fn matrix(matrix: &Matrix, args: &MatrixArgs) -> Result<()> {
    engines::ensure()?;
    build(&[&["--bins"], matrix.selection].concat())?;
    let pairs = args.pairs.unwrap_or(matrix.pairs);
    let mut filters: Vec<String> = args.rows.iter().map(|row| format!("row_{row:02}_")).collect();
    if filters.is_empty() {
        filters.push("row_".into());
    }
    let mut environment =
        vec![("BROKKR_FAULTS", "all".to_owned()), ("BROKKR_FAULT_PAIRS", pairs.to_string())];
    environment.extend(args.seed.map(|seed| ("BROKKR_SEED", seed.to_string())));
    let mut tally = Tally::default();
    let tests = Tests {
        selection: matrix.selection,
        filters: &filters.iter().map(String::as_str).collect::<Vec<_>>(),
    };
    let passed = Workspace::own()?.run_tests(&tests, &environment, |line| {
        eprintln!("{line}");
        tally.add_line(line);
    })?;
    println!("{}", tally.json());
    if !args.json {
        println!("{}", tally.table());
    }
    if !passed || tally.violations() > 0 {
        bail!("{} violations", tally.violations());
    }
    Ok(())
}
