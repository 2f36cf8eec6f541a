//! Command-line options. The defaults are the sizes of the published figures.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct RolloutArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Run this many agents.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(20..))]
    pub agents: u64,
    /// Let this percentage of the agents fail with the new version.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(..=50))]
    pub bad_percent: u8,
    /// Let no agent fail in this many of the built-in waves.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(..=4))]
    pub healthy_waves: u8,
    /// Let this percentage of the agents stop polling before the rollout begins.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(..=50))]
    pub silent_percent: u8,
    /// Let silent agents never connect, which the broker knows at once; that they have stopped, it notices after minutes.
    #[arg(long)]
    pub silent_from_start: bool,
    /// Let each wave stay healthy for this long.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub soak: Duration,
    /// Kill the leader this often.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub kill_every: Duration,
    /// Kill the leader from the start, instead of pausing it once first.
    #[arg(long)]
    pub no_pause: bool,
    /// Watch the agents for this long after the stop and a restart of both replicas.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    pub watch: Duration,
    /// Also write the JSON object into this folder, named by date and commit.
    #[arg(long)]
    pub store: Option<PathBuf>,
}
