//! `brokkr health …`

use std::path::PathBuf;

use brokkr_api::Name;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum HealthCommand {
    Test(TestHealth),
    /// Show and change the rules for the health of custom kinds
    #[command(subcommand)]
    Rules(HealthRulesCommand),
}

#[derive(Debug, Subcommand)]
pub enum HealthRulesCommand {
    /// Show the rules of a stack, or of the installation, as YAML
    #[command(after_help = "Example: brokkr health rules show --stack web > rules.yaml")]
    Show(HealthRulesScope),
    Set(SetHealthRules),
    /// Delete the rules of a stack, or of the installation
    #[command(after_help = "Example: brokkr health rules delete --stack web")]
    Delete(HealthRulesScope),
}

#[derive(Debug, clap::Args)]
pub struct HealthRulesScope {
    /// The rules of this stack [default: those of the installation]
    #[arg(long, value_parser = super::stack)]
    pub stack: Option<Name>,
}

/// Replace the rules of a stack, or of the installation
///
/// The file has a list of rules. The first rule that matches a kind decides: the rules of the stack, then those of the installation,
/// then the built-in ones. Agents that have the stack evaluate its objects again at once. `brokkr health test --rules` tests the file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr health rules set -f rules.yaml --stack web")]
pub struct SetHealthRules {
    /// Read the rules from this file
    #[arg(short, long = "filename", value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub scope: HealthRulesScope,
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
