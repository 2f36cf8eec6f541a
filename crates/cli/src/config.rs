//! Stored contexts and, separately, their tokens.
//!
//! `$XDG_CONFIG_HOME/brokkr/config.toml` contains no secrets; `credentials.toml` contains the tokens and is readable only by
//! its owner. Files are replaced atomically.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use url::Url;

const CONFIG: &str = "config.toml";
const CREDENTIALS: &str = "credentials.toml";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    pub current_context: Option<String>,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    pub server: Url,
    /// Additional certificate authorities in PEM form: a copy, because the file may be moved or deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authorities: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Credentials {
    #[serde(default)]
    tokens: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("neither XDG_CONFIG_HOME nor HOME is set")]
    Nowhere,
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, std::io::Error),
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, std::io::Error),
    // Does not quote the text, because it may be the file with the tokens.
    #[error("{0} is not valid; fix it, or remove it and log in again")]
    Malformed(PathBuf),
}

/// The folder of both files.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn of_this_user() -> Result<Self, ConfigError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let parent = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
        Ok(Self(parent.ok_or(ConfigError::Nowhere)?.join("brokkr")))
    }

    pub fn config(&self) -> Result<Config, ConfigError> {
        self.read(CONFIG)
    }

    pub fn token(&self, context: &str) -> Result<Option<SecretString>, ConfigError> {
        let mut credentials: Credentials = self.read(CREDENTIALS)?;
        Ok(credentials.tokens.remove(context).map(SecretString::from))
    }

    /// Returns the file with the tokens if other users can read it.
    pub fn has_open_credentials(&self) -> Option<PathBuf> {
        let path = self.0.join(CREDENTIALS);
        let mode = std::fs::metadata(&path).ok()?.permissions().mode();
        (mode & 0o077 != 0).then_some(path)
    }

    /// Stores a context and its token, and makes it the current one.
    pub fn store(&self, name: &str, context: Context, token: &SecretString) -> Result<(), ConfigError> {
        let mut config = self.config()?;
        config.contexts.insert(name.to_owned(), context);
        config.current_context = Some(name.to_owned());
        let mut credentials: Credentials = self.read(CREDENTIALS)?;
        credentials.tokens.insert(name.to_owned(), token.expose_secret().to_owned());
        // The token first: a stored context without a token would fail later.
        self.write(CREDENTIALS, &credentials)?;
        self.write(CONFIG, &config)
    }

    /// Makes an existing context the current one.
    pub fn use_context(&self, name: &str) -> Result<(), ConfigError> {
        let mut config = self.config()?;
        config.current_context = Some(name.to_owned());
        self.write(CONFIG, &config)
    }

    /// Deletes a context and its token.
    pub fn delete(&self, name: &str) -> Result<(), ConfigError> {
        let mut config = self.config()?;
        config.contexts.remove(name);
        config.current_context = config.current_context.filter(|current| current != name);
        let mut credentials: Credentials = self.read(CREDENTIALS)?;
        credentials.tokens.remove(name);
        // The context first: a token that remains without a context is never used.
        self.write(CONFIG, &config)?;
        self.write(CREDENTIALS, &credentials)
    }

    /// Removes the token of a context. Returns whether there was one.
    pub fn delete_token(&self, name: &str) -> Result<bool, ConfigError> {
        let mut credentials: Credentials = self.read(CREDENTIALS)?;
        let had_token = credentials.tokens.remove(name).is_some();
        if had_token {
            self.write(CREDENTIALS, &credentials)?;
        }
        Ok(had_token)
    }

    fn read<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, ConfigError> {
        let path = self.0.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|_| ConfigError::Malformed(path)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(ConfigError::Read(path, error)),
        }
    }

    fn write<T: Serialize>(&self, name: &str, content: &T) -> Result<(), ConfigError> {
        let path = self.0.join(name);
        let text = toml::to_string_pretty(content).map_err(|_| ConfigError::Malformed(path.clone()))?;
        replace(&path, &text).map_err(|error| ConfigError::Write(path, error))
    }
}

/// Replaces a file atomically, readable only by its owner.
pub fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder)?;
    let temporary = path.with_extension(format!("new.{}", std::process::id()));
    std::fs::remove_file(&temporary).ok();
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(server: &str) -> Context {
        Context {
            server: server.parse().unwrap(), certificate_authorities: Some("-----BEGIN…\n".to_owned())
        }
    }

    #[test]
    fn a_login_is_stored_and_only_the_owner_can_read_its_token() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder(home.path().join("brokkr"));
        assert_eq!(folder.config().unwrap(), Config::default());
        folder.store("one", context("https://one"), &"brk_1".to_owned().into()).unwrap();
        folder.store("two", context("https://two"), &"brk_2".to_owned().into()).unwrap();
        let config = folder.config().unwrap();
        assert_eq!(config.current_context.as_deref(), Some("two"));
        assert_eq!(config.contexts["one"], context("https://one"));
        assert_eq!(folder.token("one").unwrap().unwrap().expose_secret(), "brk_1");
        assert!(folder.token("three").unwrap().is_none());
        assert!(folder.has_open_credentials().is_none());
        let config_text = std::fs::read_to_string(folder.0.join(CONFIG)).unwrap();
        assert!(!config_text.contains("brk_"), "no token in the file without secrets");
    }

    #[test]
    fn a_deleted_context_leaves_no_token() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder(home.path().join("brokkr"));
        folder.store("one", context("https://one"), &"brk_1".to_owned().into()).unwrap();
        folder.store("two", context("https://two"), &"brk_2".to_owned().into()).unwrap();
        folder.use_context("one").unwrap();
        assert_eq!(folder.config().unwrap().current_context.as_deref(), Some("one"));
        folder.delete("one").unwrap();
        assert_eq!(folder.config().unwrap().current_context, None);
        assert!(folder.token("one").unwrap().is_none() && folder.token("two").unwrap().is_some());
        let text = std::fs::read_to_string(folder.0.join(CREDENTIALS)).unwrap();
        assert!(!text.contains("brk_1"), "{text}");
        assert!(folder.delete_token("two").unwrap());
        assert!(!folder.delete_token("two").unwrap(), "it is gone");
        assert!(folder.config().unwrap().contexts.contains_key("two"), "the context stays");
        assert!(folder.token("two").unwrap().is_none());
    }

    #[test]
    fn a_broken_file_is_named_and_not_quoted() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder(home.path().to_owned());
        std::fs::write(folder.0.join(CREDENTIALS), "tokens = brk_secret").unwrap();
        let error = folder.token("one").unwrap_err().to_string();
        assert!(error.contains(CREDENTIALS) && !error.contains("brk_secret"), "{error}");
        assert!(folder.has_open_credentials().is_some());
    }
}
