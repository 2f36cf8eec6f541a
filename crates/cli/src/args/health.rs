//! `brokkr health …`

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum HealthCommand {
    Test(TestHealth),
}

/// Show the health of objects in files, and the rules that decide it
///
/// The files contain objects with their status, as `kubectl get -o yaml` prints them. Neither a broker nor a cluster is needed.
/// The exit status is 3 if an object has failed, and 1 if one is not ready for another reason.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  kubectl get certificates -A -o yaml | brokkr health test -f -\n  \
                  brokkr health test -f object.yaml --rules rules.yaml")]
pub struct TestHealth {
    /// Read objects from this file, or - for stdin; can be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Read rules for custom kinds from this file; they win over the built-in rules
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
}
