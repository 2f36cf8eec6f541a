//! The configuration: a file, the environment and flags; flags override the environment, which overrides the file.
//!
//! A key of the file is the name of a flag, with `_` for `-`. So the flags of `args.rs` are the only list of settings,
//! and values of the file become their defaults. Each value is parsed by the flag's own parser before anything starts;
//! errors name the key and the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use crate::args::Args;

/// The command with the flags that the file may set.
const SERVE: &str = "serve";

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read {path}")]
    Read { path: String, source: std::io::Error },
    #[error("{path} is not valid TOML: {message}")]
    Syntax { path: String, message: String },
    #[error("{path}: unknown key `{key}`; known keys: {known}")]
    Unknown { path: String, key: String, known: String },
    #[error("{path}: the value of `{key}` must be a string, an integer, a boolean or a list of strings")]
    Kind { path: String, key: String },
    #[error("{path}: invalid value of `{key}`: {message}")]
    Value { path: String, key: String, message: String },
    #[error(transparent)]
    Flags(#[from] clap::Error),
}

/// An effective setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    pub key: String,
    /// None: not set.
    pub value: Option<String>,
    /// Where it comes from: `flag`, `environment`, `file` or `default`.
    pub origin: &'static str,
}

/// The parsed command line and all effective settings.
#[derive(Debug)]
pub struct Parsed {
    pub args: Args,
    pub settings: Vec<Setting>,
}

/// Parses the command line, the environment, and the file that they name.
pub fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Parsed, ConfigError> {
    let line: Vec<OsString> = line.into_iter().collect();
    let mut command = Args::command();
    let mut file = BTreeMap::new();
    if let Some(path) = named_file(&line) {
        file = read(&path)?;
        command = with_defaults(command, &file);
    }
    let matches = command.try_get_matches_from(line)?;
    let settings =
        matches.subcommand().map(|(name, matches)| settings(name, matches, &file)).unwrap_or_default();
    Ok(Parsed { args: Args::from_arg_matches(&matches)?, settings })
}

/// Returns the file that a flag or the environment names. Errors in the command line are reported later.
fn named_file(line: &[OsString]) -> Option<PathBuf> {
    let matches = Args::command().ignore_errors(true).try_get_matches_from(line).ok()?;
    let in_subcommand = matches.subcommand().and_then(|(_, matches)| matches.get_one::<PathBuf>("config"));
    in_subcommand.or_else(|| matches.get_one::<PathBuf>("config")).cloned()
}

fn serve_command() -> Command {
    let command = Args::command();
    command.find_subcommand(SERVE).cloned().unwrap_or(command)
}

/// Returns every key that can be set.
#[must_use]
pub fn keys() -> Vec<String> {
    let ids =
        serve_command().get_arguments().map(|argument| argument.get_id().to_string()).collect::<Vec<_>>();
    ids.into_iter().filter(|id| !["config", "help", "version"].contains(&id.as_str())).collect()
}

fn read(path: &Path) -> Result<BTreeMap<String, String>, ConfigError> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: name.clone(), source })?;
    // The message omits the source line, which may contain a secret.
    let table: toml::Table = toml::from_str(&text).map_err(|error: toml::de::Error| ConfigError::Syntax {
        path: name.clone(),
        message: located(&text, &error),
    })?;
    let mut settings = BTreeMap::new();
    for (key, value) in table {
        if !keys().contains(&key) {
            return Err(ConfigError::Unknown { path: name, key, known: keys().join(", ") });
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(yes) => yes.to_string(),
            toml::Value::Array(texts) => {
                let texts: Option<Vec<_>> = texts.iter().map(toml::Value::as_str).collect();
                texts.ok_or_else(|| ConfigError::Kind { path: name.clone(), key: key.clone() })?.join(",")
            }
            _ => return Err(ConfigError::Kind { path: name, key }),
        };
        check(&name, &key, &value)?;
        settings.insert(key, value);
    }
    Ok(settings)
}

fn located(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    format!("{}, at line {line}", error.message())
}

/// Checks a value with the parser of its flag.
fn check(path: &str, key: &str, value: &str) -> Result<(), ConfigError> {
    let mut command = serve_command().no_binary_name(true);
    for other in keys() {
        command = command.mut_arg(other, |argument| argument.required(false).env(None::<&str>));
    }
    let flag = format!("--{}", key.replace('_', "-"));
    let is_switch = command
        .get_arguments()
        .any(|argument| argument.get_id() == key && matches!(argument.get_action(), ArgAction::SetTrue));
    let given = match (is_switch, value) {
        (true, "true") => vec![flag],
        (true, "false") => Vec::new(),
        _ => vec![format!("{flag}={value}")],
    };
    let Err(error) = command.try_get_matches_from(given) else { return Ok(()) };
    let text = error.to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Err(ConfigError::Value { path: path.to_owned(), key: key.to_owned(), message })
}

/// Makes the values of the file the defaults of the flags.
fn with_defaults(mut command: Command, file: &BTreeMap<String, String>) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |mut subcommand| {
            for (key, value) in file {
                if subcommand.get_arguments().any(|argument| argument.get_id() == key.as_str()) {
                    subcommand = subcommand
                        .mut_arg(key, |argument| argument.required(false).default_value(value.clone()));
                }
            }
            subcommand
        });
    }
    command
}

fn settings(name: &str, matches: &ArgMatches, file: &BTreeMap<String, String>) -> Vec<Setting> {
    let command = Args::command();
    let Some(subcommand) = command.find_subcommand(name) else { return Vec::new() };
    let arguments =
        subcommand.get_arguments().filter(|argument| keys().contains(&argument.get_id().to_string()));
    arguments
        .map(|argument| {
            let key = argument.get_id().to_string();
            let given = matches.get_raw(&key).map(|values| {
                values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(",")
            });
            // A value that is hidden in the environment is hidden everywhere.
            let value = match given {
                Some(_) if argument.is_hide_env_values_set() => Some("(set, not shown)".to_owned()),
                given => given,
            };
            let origin = match matches.value_source(&key) {
                Some(ValueSource::CommandLine) => "flag",
                Some(ValueSource::EnvVariable) => "environment",
                _ if file.contains_key(&key) => "file",
                _ => "default",
            };
            Setting { key, value, origin }
        })
        .collect()
}

/// Formats the settings as a configuration file, without secrets.
#[must_use]
pub fn shown(settings: &[Setting]) -> String {
    let line = |setting: &Setting| match &setting.value {
        Some(value) => format!("{} = {:?} # {}\n", setting.key, value, setting.origin),
        None => format!("# {} is not set\n", setting.key),
    };
    settings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(file: &str, flags: &[&str]) -> Result<Parsed, ConfigError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("broker.toml");
        fs::write(&path, file).expect("a file");
        let line = ["brokkr-broker", "config", "--config"].map(OsString::from);
        let flags = flags.iter().map(OsString::from);
        parse(line.into_iter().chain([path.into_os_string()]).chain(flags))
    }

    fn refused(file: &str) -> String {
        parsed(file, &[]).expect_err("the file is invalid").to_string()
    }

    const DATABASE: &str = "database_url = \"postgres://brokkr:hunter2@db/brokkr\"\n";

    #[test]
    fn a_flag_overrides_the_file_and_the_file_overrides_the_default() {
        let file = format!(
            "{DATABASE}max_connections = 7\nlisten = \"127.0.0.1:1\"\ndrain = \"3s\"\nwebhook_http = true\ntrusted_proxies = [\"10.0.0.0/8\", \"192.0.2.1\"]\n"
        );
        let parsed = parsed(&file, &["--listen", "127.0.0.1:2"]).expect("the file is valid");
        let text = shown(&parsed.settings);
        assert!(text.contains("listen = \"127.0.0.1:2\" # flag\n"), "{text}");
        assert!(text.contains("max_connections = \"7\" # file\n"), "{text}");
        assert!(text.contains("database_connections = \"20\" # default\n"), "{text}");
        assert!(text.contains("# tls_cert is not set\n"), "{text}");
        assert!(
            !text.contains("hunter2") && text.contains("database_url = \"(set, not shown)\" # file"),
            "{text}"
        );
        let crate::args::Command::Config(args) = parsed.args.command else { panic!("the command") };
        assert_eq!((args.max_connections, args.drain.as_secs()), (7, 3));
        assert!(args.webhooks.webhook_http && !args.webhooks.webhook_any_port);
        assert_eq!(args.trusted_proxies.len(), 2);
        assert!(text.contains("trusted_proxies = \"10.0.0.0/8,192.0.2.1\" # file\n"), "{text}");
    }

    #[test]
    fn errors_name_the_key_and_the_file() {
        let wrong = refused(&format!("{DATABASE}liten = \"a\"\n"));
        assert!(wrong.contains("broker.toml: unknown key `liten`") && wrong.contains("listen"), "{wrong}");
        let wrong = refused(&format!("{DATABASE}listen = \"nowhere\"\n"));
        assert!(wrong.contains("broker.toml: invalid value of `listen`: invalid value"), "{wrong}");
        let wrong = refused(&format!("{DATABASE}listen = [1]\n"));
        assert!(wrong.contains("`listen` must be a string"), "{wrong}");
        let wrong = refused(&format!("{DATABASE}webhook_http = \"perhaps\"\n"));
        assert!(wrong.contains("invalid value of `webhook_http`"), "{wrong}");
        let wrong = refused("database_url = \"postgres://a:hunter2@db\" x\n");
        assert!(wrong.contains("broker.toml is not valid TOML") && wrong.contains("line 1"), "{wrong}");
        assert!(!wrong.contains("hunter2"), "{wrong}");
        assert!(refused("").contains("--database-url"));
    }

    #[test]
    fn every_key_is_documented_with_its_default() {
        let page = include_str!("../../../docs/configuration.md");
        for argument in
            serve_command().get_arguments().filter(|argument| keys().contains(&argument.get_id().to_string()))
        {
            let key = argument.get_id();
            let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{key}` | ")));
            let row = row.unwrap_or_else(|| panic!("docs/configuration.md does not mention `{key}`"));
            let documented = row.split(" |").next().unwrap_or_default().trim_matches('`');
            let default = argument.get_default_values().iter().map(|value| value.to_string_lossy());
            let default = default.collect::<Vec<_>>().join(",");
            let is_right = match (default.as_str(), argument.get_action()) {
                ("", ArgAction::SetTrue) => documented == "false",
                ("", _) => documented.starts_with("none"),
                _ => documented == default,
            };
            assert!(
                is_right,
                "docs/configuration.md documents the default of `{key}` as {documented:?}; it is {default:?}"
            );
        }
    }
}
