//! `cargo xtask faults`: the agent's fault matrix in full, and the proof that its rows find what is wrong.
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
    Agent(AgentArgs),
    Seeded(seeded::Args),
}

/// Every row about the agent, in full, and pairs of faults by seed.
#[derive(clap::Args)]
pub struct AgentArgs {
    /// Print the result as JSON, and nothing else to stdout.
    #[arg(long)]
    json: bool,
    /// Replay the random choices of an earlier run, which printed this number.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these rows, for instance 20,26.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<u32>,
    /// So many pairs of faults.
    #[arg(long, default_value_t = 200)]
    pairs: u32,
}

pub fn run(args: &Args) -> Result<()> {
    match args {
        Args::Agent(args) => agent(args),
        Args::Seeded(args) => seeded::run(args),
    }
}

fn agent(args: &AgentArgs) -> Result<()> {
    engines::ensure()?;
    build(&["--workspace", "--bins", "--test", "faults"])?;
    // Rows that are asked for by number come without pairs.
    let with_pairs = args.rows.is_empty() && args.pairs > 0;
    let mut filters: Vec<String> = args.rows.iter().map(|row| format!("row_{row}_")).collect();
    if filters.is_empty() {
        filters.push("row_".into());
    }
    let mut environment =
        vec![("BROKKR_FAULTS", "all".to_owned()), ("BROKKR_FAULT_PAIRS", args.pairs.to_string())];
    environment.extend(args.seed.map(|seed| ("BROKKR_SEED", seed.to_string())));
    let mut tally = Tally::default();
    let tests = Tests {
        selection: &["--workspace", "--test", "faults"],
        filters: &filters.iter().map(String::as_str).collect::<Vec<_>>(),
    };
    let passed = engines_then(&tests, &environment, |line| {
        eprintln!("{line}");
        tally.hear(line);
    })?;
    let pairs = if with_pairs { args.pairs } else { 0 };
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
