//! `brokkr context …`, `completion` and `man`: what is about this machine and no broker.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// The stored logins; `brokkr login` adds one
    List,
    /// Use another stored login from now on
    Use {
        /// By name
        #[arg(value_name = "CONTEXT")]
        name: String,
    },
    /// Forget a stored login and its token; the token itself stays valid until it is revoked
    Delete {
        /// By name
        #[arg(value_name = "CONTEXT")]
        name: String,
    },
}

/// Print a script that completes commands, options and names in a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Load it for this shell, or from its start-up file:\n  source <(brokkr completion bash)\n  \
                  source <(brokkr completion zsh)\n  brokkr completion fish | source"
)]
pub struct Completion {
    /// Which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What could come next: asked by the scripts of `brokkr completion`
#[derive(Debug, clap::Args)]
pub struct Complete {
    /// The words behind the program's name, the last one being typed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr man ~/.local/share/man/man1 && man brokkr-apply")]
pub struct Man {
    /// The directory, which is made if there is none
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
