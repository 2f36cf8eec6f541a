//! `cargo xtask contract`: lists which tests prove which promise, and fails if a promise has no test.
//!
//! The promises are the rows of `docs/promises.md`; a test has the ids of the promises it proves in its name:
//! `b6_a_resource_with_an_owner_…`, `e1_e2_a_deleted_stack_…`. Only the promises of the section "Planned" may have no
//! test, and they must have none: a promise that is proven moves to the section of its letter.

mod promises;
pub mod tests;
mod verdict;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::runner::root;
use promises::Promise;
use verdict::{Proofs, Verdict};

/// List which tests prove which promise; fail if a promise that is not planned has no test.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let root = root();
    let file = root.join("docs/promises.md");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let promises = promises::read(&text);
    let known: BTreeSet<&str> = promises.iter().map(|promise| promise.id.as_str()).collect();

    let mut proofs = Proofs::new();
    for test in tests::find(&root)? {
        for id in test.promises() {
            if known.contains(id.as_str()) {
                proofs.entry(id).or_default().push(test.to_string());
            } else if known.iter().any(|promise| promise[..1] == id[..1]) {
                // `v1` is no id, but a word with a letter that promises use is probably a wrong id.
                eprintln!("{test} names {id}, which is not a promise");
            }
        }
    }
    let verdict = Verdict::of(&promises, &proofs);
    if args.json {
        println!("{}", verdict.json(promises.len()));
    } else {
        print_table(&promises, &proofs, &verdict);
    }
    let problems = verdict.problems();
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

fn print_table(promises: &[Promise], proofs: &Proofs, verdict: &Verdict<'_>) {
    for promise in promises {
        println!("{:<4} {}", promise.id, promise.summary());
        match proofs.get(&promise.id) {
            Some(tests) => tests.iter().for_each(|test| println!("       {test}")),
            None if promise.planned => println!("       planned"),
            None => println!("       OPEN"),
        }
    }
    let planned = verdict.planned.len();
    println!("\n{} of {} promises are proven, {planned} are planned", verdict.proven, promises.len());
}
