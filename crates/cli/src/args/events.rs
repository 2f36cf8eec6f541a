//! `brokkr events`

use brokkr_api::Name;

/// What agents reported, the newest last
#[derive(Debug, clap::Args)]
pub struct Events {
    /// Only of this stack, by name or id
    #[arg(long, value_name = "STACK", value_parser = super::stack)]
    pub stack: Option<Name>,
    /// Only of this agent, by name or id
    #[arg(short, long, value_name = "AGENT", value_parser = super::agent)]
    pub agent: Option<Name>,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = super::limit())]
    pub limit: u32,
    /// Go on with every event as it comes, until interrupted
    #[arg(short, long)]
    pub watch: bool,
}
