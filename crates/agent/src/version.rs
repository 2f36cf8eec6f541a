//! The version of this build.

/// The version of the workspace, or the stamp with which tests build the same code as another version.
pub const VERSION: &str = match option_env!("BROKKR_VERSION_STAMP") {
    Some(stamp) => stamp,
    None => env!("CARGO_PKG_VERSION"),
};
