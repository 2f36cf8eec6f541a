//! The project's own commands: `cargo xtask <command>`.
//!
//! ```text
//! commands/engines.rs    builds the real engines that tests run on
//! commands/test.rs       every test, with shared engines: what CI runs
//! commands/e2e.rs        the end-to-end tests
//! commands/faults.rs     the fault matrix in full, and bugs that it has to find
//! commands/api.rs        every route, called with made-up requests
//! commands/fuzz.rs       made-up input for everything that reads what strangers send
//! commands/docs.rs       the OpenAPI document and the reference pages, from the code
//! commands/book.rs       the documentation as a book of web pages
//! commands/contract.rs   which promises are proven by which tests
//! commands/charts.rs     what the charts have from elsewhere
//! commands/image.rs      self-contained programs, and images of them
//! commands/bench.rs      Brokkr measured beside its peers
//! commands/journeys.rs   the first hour, typed as a user would
//! commands/dev.rs        a whole Brokkr on this machine, until Ctrl-C
//! runner.rs              cargo, the test runner, and becoming another program
//! ```

mod commands;
mod runner;

use anyhow::Result;
use clap::Parser;

use commands::{
    api, bench, book, charts, contract, dev, docs, e2e, engines, faults, fuzz, image, journeys, test,
};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    Engines(engines::Args),
    Test(test::Args),
    E2e(e2e::Args),
    #[command(subcommand)]
    Faults(faults::Args),
    Fuzz(fuzz::Args),
    Api(api::Args),
    Contract(contract::Args),
    Journeys(journeys::Args),
    Docs(docs::Args),
    Book(book::Args),
    Dev(dev::Args),
    Bench(bench::Args),
    Charts(charts::Args),
    Image(image::Args),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Engines(args) => engines::run(&args),
        Command::Test(args) => test::run(&args),
        Command::E2e(args) => e2e::run(&args),
        Command::Faults(args) => faults::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Api(args) => api::run(&args),
        Command::Contract(args) => contract::run(&args),
        Command::Journeys(args) => journeys::run(&args),
        Command::Docs(args) => docs::run(&args),
        Command::Book(args) => book::run(&args),
        Command::Dev(args) => dev::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Charts(args) => charts::run(&args),
        Command::Image(args) => image::run(&args),
    }
}
