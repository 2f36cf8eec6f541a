//! Whom a stack targets: part of `brokkr apply`, and all of `brokkr retarget`

use brokkr_api::{Name, Selector};

#[derive(Debug, clap::Args)]
pub struct Targeting {
    /// Target agents by labels, such as env=prod,region in (eu,us); can be repeated
    ///
    /// The targets given here replace those that the stack had. Without --to and --to-agent they stay as they are.
    #[arg(long, value_name = "SELECTOR")]
    pub to: Vec<Selector>,
    /// Target one agent; can be repeated
    #[arg(long, value_name = "AGENT", value_parser = super::agent)]
    pub to_agent: Vec<Name>,
    /// How many agents lose the stack by other selectors; the refusal without it says the number
    #[arg(long, value_name = "NUMBER", value_parser = super::number::<u64>)]
    pub expect: Option<u64>,
}

/// Change whom a stack targets, without submitting anything
///
/// Agents that the stack gains get its newest version; agents that lose it remove it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr retarget web --to env=prod --to-agent lab-1")]
#[group(id = "new", args = ["to", "to_agent"], required = true, multiple = true)]
pub struct Retarget {
    /// By name or id
    #[arg(value_parser = super::stack)]
    pub stack: Name,
    #[command(flatten)]
    pub targeting: Targeting,
}
