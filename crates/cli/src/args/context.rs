//! `brokkr login`, `context`, `version`, `completion` and `man`: this program and its stored logins.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use url::Url;

/// Log in to a broker and store the token
///
/// The token is read from --token-file, BROKKR_TOKEN, stdin, or a prompt, and checked before it is stored. There is no flag
/// for it, because other users of the machine can see command lines. It is stored in a file that only you can read.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: brokkr login https://brokkr.example:8780 --token-file token --ca-file ca.pem"
)]
pub struct Login {
    /// URL of the broker, such as https://brokkr.example
    #[arg(value_parser = super::server_url)]
    pub url: Url,
}

#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List contexts
    List,
    /// Switch to another context
    Use {
        /// Name
        #[arg(value_name = "CONTEXT")]
        name: String,
    },
    /// Delete a context and its token; the token stays valid until it is revoked
    Delete {
        /// Name
        #[arg(value_name = "CONTEXT")]
        name: String,
    },
}

/// Show the version of this program and of the broker
#[derive(Debug, clap::Args)]
pub struct Version {
    /// Show only the version of this program
    #[arg(long)]
    pub client: bool,
}

/// Print a shell completion script
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Load it in the current shell, or in its start-up file:\n  source <(brokkr completion bash)\n  \
                  source <(brokkr completion zsh)\n  brokkr completion fish | source"
)]
pub struct Completion {
    /// Shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print completion candidates; called by the completion scripts
#[derive(Debug, clap::Args)]
pub struct Complete {
    /// The words after the program's name, up to the cursor
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Write manual pages into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: brokkr man ~/.local/share/man/man1 && man brokkr-apply")]
pub struct Man {
    /// Directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
