//! `cargo xtask sim`: runs the stories of many seeds with every fault at every step, and prints the violations.
//!
//! Arguments: the number of seeds, the commit, and `json` or `text`.

use std::process::ExitCode;

use brokkr_sim::case::Case;
use brokkr_sim::suite;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seeds, commit, format] = arguments.as_slice() else {
        eprintln!("usage: simulate SEEDS COMMIT json|text");
        return ExitCode::from(2);
    };
    let Ok(seeds) = seeds.parse::<u64>() else {
        eprintln!("not a number of seeds: {seeds}");
        return ExitCode::from(2);
    };
    let result =
        suite::run_on_all_cores(seeds, Case::hostile, &[suite::PLAIN, suite::LATE, suite::TROUBLE], 1);
    if format == "json" {
        println!("{}", result.to_json(commit));
    } else {
        for (invariant, violations) in result.by_invariant() {
            println!("{invariant}: {}", violations.len());
            for violation in violations {
                let fault = violation.fault.map_or("no fault".to_owned(), |fault| format!("{fault:?}"));
                println!("  seed {}, {fault}: {}", violation.seed, violation.text);
            }
        }
        println!(
            "{} seeds, {} of them compared, {} stories, {} steps, {} violations",
            result.seeds,
            result.compared,
            result.stories,
            result.steps,
            result.violations.len()
        );
    }
    ExitCode::from(u8::from(!result.violations.is_empty()))
}
