//! `cargo xtask contract`: lists which tests prove which promise, and fails if a promise has no test.
//!
//! The promises are the rows of `docs/promises.md`; a test has the ids of the promises it proves in its name:
//! `b6_a_resource_with_an_owner_…`, `e1_e2_a_deleted_stack_…`.

mod promises;
pub mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::runner::root;
use promises::Promise;

/// List which tests prove which promise; fail if a promise has no test.
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

    let mut proofs: BTreeMap<String, Vec<String>> = BTreeMap::new();
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
    let open = open(&promises, &proofs);
    if args.json {
        print_json(&promises, &open)?;
    } else {
        print_table(&promises, &proofs, &open);
    }
    ensure!(open.is_empty(), "no test proves: {}", open.join(" "));
    Ok(())
}

fn open<'a>(promises: &'a [Promise], proofs: &BTreeMap<String, Vec<String>>) -> Vec<&'a str> {
    promises.iter().map(|promise| promise.id.as_str()).filter(|&id| !proofs.contains_key(id)).collect()
}

fn print_json(promises: &[Promise], open: &[&str]) -> Result<()> {
    let (all, proven) = (promises.len(), promises.len() - open.len());
    println!(r#"{{"promises":{all},"proven":{proven},"open":{}}}"#, serde_json::to_string(open)?);
    Ok(())
}

fn print_table(promises: &[Promise], proofs: &BTreeMap<String, Vec<String>>, open: &[&str]) {
    for promise in promises {
        println!("{:<4} {}", promise.id, promise.summary());
        match proofs.get(&promise.id) {
            Some(tests) => tests.iter().for_each(|test| println!("       {test}")),
            None => println!("       OPEN"),
        }
    }
    println!("\n{} of {} promises are proven", promises.len() - open.len(), promises.len());
}
