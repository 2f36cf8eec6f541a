//! `brokkr login`

use url::Url;

/// Check a token with the broker and remember both
///
/// The token is read from --token-file, from BROKKR_TOKEN, from stdin, or asked for: never from a flag, because other
/// users of the machine can see flags. It is stored apart from the context, readable only by you.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: brokkr login https://brokkr.example:8780 --token-file token --ca-file ca.pem"
)]
pub struct Login {
    /// Where the broker is, such as https://brokkr.example
    #[arg(value_parser = super::address)]
    pub url: Url,
}
