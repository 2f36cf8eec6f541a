//! The command line.
//!
//! A command passes through these modules: [`args`] defines the grammar (types only), [`commands`] implements it,
//! [`connect`] and [`config`] find the broker and the credential, [`view`] turns API types into text, and only [`printer`]
//! writes to stdout and stderr. Errors become a [`failure::Failure`]: what failed, where, the next step, a code, and the exit
//! status.
//!
//! Helpers: [`preflight`] and [`bundle`] evaluate and pack the data of `brokkr admin`; [`complete`] completes command lines
//! with names from [`name_cache`]; [`manifest`], [`render`] and [`git`] read manifests and their commit; [`kubectl`] and
//! [`joining`] install an agent; [`program`] runs the user's own programs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::Args;
use crate::failure::{Exit, Outcome};
use crate::printer::Printer;

mod args;
mod bundle;
mod ci;
mod commands;
mod complete;
mod config;
mod connect;
mod delivery;
mod failure;
mod git;
mod joining;
mod kubectl;
mod manifest;
mod name_cache;
mod preflight;
mod printer;
mod program;
mod render;
mod view;

/// Parses the command line. As a kubectl plugin the program is called `kubectl-brokkr`, and shows `kubectl brokkr` in help.
fn parse() -> Args {
    let called = std::env::args_os().next().map(PathBuf::from);
    let is_plugin =
        called.is_some_and(|called| called.file_stem().is_some_and(|name| name == "kubectl-brokkr"));
    let command = args::command();
    let command = if is_plugin { command.bin_name("kubectl brokkr") } else { command };
    let matches = command.get_matches();
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn main() -> ExitCode {
    let args = parse();
    let submits = args.command.submits();
    let printer = Printer::new(args.global.output, !args.global.no_headers, args.global.quiet);
    // Fails only if a provider is already installed, which is then used.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            printer.warn(&format!("failed to start: {error}"));
            return ExitCode::from(Exit::Failed as u8);
        }
    };
    let exit = runtime.block_on(async {
        tokio::select! {
            result = commands::run(args, printer) => match result {
                Ok(Outcome::Success) => ExitCode::SUCCESS,
                Ok(Outcome::Negative) => ExitCode::from(Exit::Negative as u8),
                Err(failure) => {
                    printer.failure(&failure);
                    ExitCode::from(failure.exit as u8)
                }
            },
            // Dropping the command restores the terminal before the process ends.
            _ = tokio::signal::ctrl_c() => {
                if submits {
                    printer.note("interrupted; submitted versions stay, and agents continue");
                }
                ExitCode::from(Exit::Interrupted as u8)
            }
        }
    });
    // A thread may still be waiting for input.
    runtime.shutdown_background();
    exit
}
