//! `cargo xtask faults`: the fault matrix in full, of the agent and of the broker, and the proof that its rows find what
//! is wrong.
//!
//! ```text
//! faults/tally.rs     what the test runner said: which rows ran, which held
//! faults/seeded.rs    bugs on purpose, and the tests that have to find them
//! ```

mod seeded;
mod tally;

use anyhow::{Result, bail};

use super::engines;
use crate::runner::{Tests, build, engines_then};
use tally::Tally;

/// Run the fault matrix.
#[derive(clap::Subcommand)]
pub enum Args {
    /// Every row about the agent, in full, and pairs of faults by seed.
    Agent(MatrixArgs),
    /// Every row about the broker, in full, on two replicas, and pairs of faults by seed.
    Broker(MatrixArgs),
    /// Require that bugs put into the agent on purpose are found.
    Seeded(seeded::Args),
    /// Require that bugs put into the broker on purpose are found.
    BrokerSeeded(seeded::Args),
}

#[derive(clap::Args)]
pub struct MatrixArgs {
    /// Print the result as JSON, and nothing else to stdout.
    #[arg(long)]
    json: bool,
    /// Replay the random choices of an earlier run, which printed this number.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these rows, for instance 20,26.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<u32>,
    /// So many pairs of faults; 200 for the agent, 30 for the broker if not given.
    #[arg(long)]
    pairs: Option<u32>,
}

/// Where the rows of a part are, and how many pairs it takes.
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
        Args::Seeded(args) => seeded::run(&seeded::AGENT, args),
        Args::BrokerSeeded(args) => seeded::run(&seeded::BROKER, args),
    }
}

fn matrix(matrix: &Matrix, args: &MatrixArgs) -> Result<()> {
    engines::ensure()?;
    build(&[&["--bins"], matrix.selection].concat())?;
    let wanted = args.pairs.unwrap_or(matrix.pairs);
    // Rows that are asked for by number come without pairs.
    let with_pairs = args.rows.is_empty() && wanted > 0;
    let mut filters: Vec<String> = args.rows.iter().map(|row| format!("row_{row:02}_")).collect();
    if filters.is_empty() {
        filters.push("row_".into());
    }
    let mut environment =
        vec![("BROKKR_FAULTS", "all".to_owned()), ("BROKKR_FAULT_PAIRS", wanted.to_string())];
    environment.extend(args.seed.map(|seed| ("BROKKR_SEED", seed.to_string())));
    let mut tally = Tally::default();
    let tests = Tests {
        selection: matrix.selection,
        filters: &filters.iter().map(String::as_str).collect::<Vec<_>>(),
    };
    let passed = engines_then(&tests, &environment, |line| {
        eprintln!("{line}");
        tally.hear(line);
    })?;
    let pairs = if with_pairs { wanted } else { 0 };
    println!(
        r#"{{"rows":{},"passed":{},"pairs":{pairs},"violations":{}}}"#,
        tally.rows(),
        tally.passed(),
        tally.violations()
    );
    if !args.json {
        println!("{}", tally.table());
    }
    if !passed || tally.violations() > 0 {
        bail!("{} violations", tally.violations());
    }
    Ok(())
}
