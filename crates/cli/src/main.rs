//! The command line: the doorway.
//!
//! A command walks through the rooms in this order: [`args`] says what can be asked (only types), [`commands`] does it
//! (only behaviour), [`connect`] and [`config`] find the broker and the credential, [`view`] turns what came back into
//! text, and [`printer`] is the one gate to stdout and stderr. Whatever goes wrong ends as a [`failure::Failure`]: what,
//! where, next step, code, and the exit status that scripts rely on. Beside the way lie [`preflight`] and [`bundle`],
//! which judge and pack what `brokkr admin` asked, [`complete`] and [`man`], which only look at the definition of the
//! commands ([`remembered`] has names for the former), and [`render`] and [`kubectl`], which let the user's own programs
//! make manifests and install an agent (by way of [`program`]).

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::Args;
use crate::failure::{Answer, Exit};
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
mod joining;
mod kubectl;
mod man;
mod manifest;
mod preflight;
mod printer;
mod program;
mod remembered;
mod render;
mod view;

/// As a plugin of kubectl it is called `kubectl-brokkr`, and then calls itself what people type.
fn parse() -> Args {
    let called = std::env::args_os().next().map(PathBuf::from);
    let is_plugin =
        called.is_some_and(|called| called.file_stem().is_some_and(|name| name == "kubectl-brokkr"));
    let command = if is_plugin { Args::command().bin_name("kubectl brokkr") } else { Args::command() };
    let matches = command.get_matches();
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn main() -> ExitCode {
    let args = parse();
    let submits = args.command.submits();
    let printer = Printer::new(args.global.output, !args.global.no_headers, args.global.quiet);
    // Somebody else may have installed one already; then that one is used.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            printer.warn(&format!("cannot start: {error}"));
            return ExitCode::from(Exit::Failed as u8);
        }
    };
    let exit = runtime.block_on(async {
        tokio::select! {
            result = commands::run(args, printer) => match result {
                Ok(Answer::Yes) => ExitCode::SUCCESS,
                Ok(Answer::No) => ExitCode::from(Exit::No as u8),
                Err(failure) => {
                    printer.failure(&failure);
                    ExitCode::from(failure.exit as u8)
                }
            },
            // Dropping the command lets the terminal be put right again before the process ends.
            _ = tokio::signal::ctrl_c() => {
                if submits {
                    printer.note("interrupted; what was already submitted stays, and agents go on");
                }
                ExitCode::from(Exit::Interrupted as u8)
            }
        }
    });
    // A thread may still wait for input that never comes.
    runtime.shutdown_background();
    exit
}
