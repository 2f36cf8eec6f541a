//! The project's own commands: `cargo xtask <command>`.
//!
//! ```text
//! commands/engines.rs    builds the engines: the programs that tests run on (etcd, Kubernetes, containerd, …)
//! commands/test.rs       runs every test, as CI does, with engines that are started once for all of them
//! commands/e2e.rs        runs the end-to-end tests
//! commands/faults.rs     runs the full fault matrix, and checks that it finds deliberate bugs
//! commands/sim.rs        runs the agent's decisions against a simulated API server, with every fault at every step
//! commands/versions.rs   runs what depends on Kubernetes on every supported version of it
//! commands/hostile.rs    sends what an attacker with the key of an agent could send
//! commands/api.rs        calls every route with generated requests
//! commands/fuzz.rs       fuzzes everything that parses untrusted input
//! commands/docs.rs       generates the OpenAPI document and the reference pages
//! commands/results.rs    writes the page about the results of `.ci/nightly`
//! commands/book.rs       builds the documentation as web pages
//! commands/contract.rs   lists which tests prove which promise
//! commands/charts.rs     generates files of the Helm charts
//! commands/console.rs    builds and checks the web console
//! commands/image.rs      builds static programs and container images
//! commands/bench.rs      benchmarks the agent against Flux's apply engine, and the broker against minimal servers
//! commands/journeys.rs   runs the commands of a user's first hour, and counts them
//! commands/dev.rs        runs a complete Brokkr on this machine
//! runner.rs              runs cargo, the test runner and other programs
//! ```

mod commands;
mod runner;

use anyhow::Result;
use clap::Parser;

use commands::{
    api, bench, book, charts, console, contract, dev, docs, e2e, engines, faults, fuzz, hostile, image,
    journeys, results, sim, test, versions,
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
    Sim(sim::Args),
    Versions(versions::Args),
    Hostile(hostile::Args),
    Fuzz(fuzz::Args),
    Api(api::Args),
    Contract(contract::Args),
    Journeys(journeys::Args),
    Docs(docs::Args),
    Results(results::Args),
    Book(book::Args),
    Dev(dev::Args),
    Bench(bench::Args),
    Charts(charts::Args),
    Console(console::Args),
    Image(image::Args),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Engines(args) => engines::run(&args),
        Command::Test(args) => test::run(&args),
        Command::E2e(args) => e2e::run(&args),
        Command::Faults(args) => faults::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Versions(args) => versions::run(&args),
        Command::Hostile(args) => hostile::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Api(args) => api::run(&args),
        Command::Contract(args) => contract::run(&args),
        Command::Journeys(args) => journeys::run(&args),
        Command::Docs(args) => docs::run(&args),
        Command::Results(args) => results::run(&args),
        Command::Book(args) => book::run(&args),
        Command::Dev(args) => dev::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Charts(args) => charts::run(&args),
        Command::Console(args) => console::run(&args),
        Command::Image(args) => image::run(&args),
    }
}
