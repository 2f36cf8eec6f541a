//! `cargo xtask api`: calls every route of the OpenAPI document with generated requests, on a real broker with TLS. No
//! request may cause an internal error, and every response must match the document.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::bench::cache;
use crate::runner::{become_built, build};

const SCHEMATHESIS: &str = "4.32.5";

/// Call every route of the OpenAPI document with generated requests.
#[derive(clap::Args)]
pub struct Args {
    /// Generate at most this many requests for each route.
    #[arg(long, default_value_t = 30, value_name = "COUNT")]
    examples: u32,
    /// Replay the random choices of an earlier run, which printed this seed.
    #[arg(long)]
    seed: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let program = schemathesis()?;
    build(&["--workspace", "--bins"])?;
    // Streams do not end, so they are left out.
    let script = "exec \"$0\" run \"$BROKKR_URL/api/v1/openapi.json\" --url \"$BROKKR_URL\" --tls-verify \"$BROKKR_CA\" \
         -H \"Authorization: Bearer $BROKKR_TOKEN\" --exclude-path-regex stream \
         --phases examples,coverage,fuzzing --request-timeout 30 --continue-on-failure \
         --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \"$@\"";
    become_built("with-broker", |command| {
        command
            .args(["bash", "-c", script])
            .arg(&program)
            .args(["--max-examples", &args.examples.to_string()]);
        if let Some(seed) = &args.seed {
            command.args(["--seed", seed]);
        }
        command
    })
}

/// Returns the path of the program, and installs it beside the engines if it is missing.
fn schemathesis() -> Result<PathBuf> {
    let home = cache()?.join(format!("tools/schemathesis-{SCHEMATHESIS}"));
    let program = home.join("bin/schemathesis");
    if !program.exists() {
        finish(Command::new("python3").args(["-m", "venv"]).arg(&home), &home)?;
        let wanted = format!("schemathesis=={SCHEMATHESIS}");
        finish(Command::new(home.join("bin/pip")).args(["install", "--quiet", &wanted]), &home)?;
    }
    Ok(program)
}

fn finish(command: &mut Command, home: &Path) -> Result<()> {
    let status = command.status().context("Python with venv is needed")?;
    if !status.success() {
        bail!("cannot install schemathesis; remove {} and try again", home.display());
    }
    Ok(())
}
