//! `brokkr completion`, and the hidden command that its scripts call.

use std::time::Duration;

use brokkr_client::{Client, ClientError};
use jiff::Timestamp;

use crate::args::{self, Complete, Completion, Global, Shell};
use crate::complete::{Expected, Names, expected};
use crate::config::Folder;
use crate::connect::connect_once;
use crate::failure::Result;
use crate::name_cache::NameCache;
use crate::printer::Printer;

/// The user waits at most this long after pressing Tab.
const TIMEOUT: Duration = Duration::from_secs(2);

pub fn script(args: &Completion, printer: Printer) -> Result {
    let script = match args.shell {
        Shell::Bash => include_str!("../completion/brokkr.bash"),
        Shell::Zsh => include_str!("../completion/brokkr.zsh"),
        Shell::Fish => include_str!("../completion/brokkr.fish"),
    };
    printer.data(script.trim_end())
}

/// Prints one candidate per line, followed by a tab and its description. Errors are not printed: they would end up on the
/// user's command line.
pub async fn answer(complete: Complete, global: &Global, printer: Printer) -> Result {
    let mut brokkr = args::command();
    brokkr.build();
    let typed = complete.words.last().cloned().unwrap_or_default();
    let candidates = match expected(&brokkr, &complete.words) {
        Expected::Words(words) => words,
        Expected::Names { noun, prefix } => {
            let names = tokio::time::timeout(TIMEOUT, names(noun, &complete.words, global)).await;
            names
                .unwrap_or_default()
                .into_iter()
                .map(|name| (format!("{prefix}{name}"), String::new()))
                .collect()
        }
        Expected::Files | Expected::Anything => Vec::new(),
    };
    for (word, meaning) in candidates.into_iter().filter(|(word, _)| word.starts_with(&typed)) {
        printer.data(&format!("{word}\t{meaning}"))?;
    }
    Ok(())
}

async fn names(noun: Names, words: &[String], global: &Global) -> Vec<String> {
    if noun == Names::Contexts {
        let config = Folder::of_this_user().and_then(|folder| folder.config());
        return config.map(|config| config.contexts.into_keys().collect()).unwrap_or_default();
    }
    // Options that were typed so far select the broker.
    let typed = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    let mut global = global.clone();
    global.context = typed("--context").or(global.context);
    global.server = typed("--server").and_then(|server| server.parse().ok()).or(global.server);
    global.project = typed("--project").and_then(|project| project.parse().ok()).or(global.project);
    let Ok((client, cache_key)) = connect_once(&global) else { return Vec::new() };
    let source = NameSource { client, cache: NameCache::of(cache_key) };
    source.all(noun).await.unwrap_or_default()
}

/// Reads names from the broker, or from the cache.
struct NameSource {
    client: Client,
    cache: Option<NameCache>,
}

impl NameSource {
    async fn all(&self, noun: Names) -> Result<Vec<String>, ClientError> {
        let client = &self.client;
        match noun {
            Names::Stacks => self.named("stacks", client.stacks_all(), |stack| stack.name.to_string()).await,
            Names::Agents => self.named("agents", client.agents_all(), |agent| agent.name.to_string()).await,
            Names::StacksAndAgents => {
                let stacks = Box::pin(self.all(Names::Stacks)).await?;
                let agents = Box::pin(self.all(Names::Agents)).await?;
                let agents = agents.into_iter().map(|agent| format!("agent/{agent}"));
                Ok(stacks.into_iter().chain(agents).collect())
            }
            Names::Projects => {
                self.named("projects", client.projects_all(), |project| project.name.to_string()).await
            }
            Names::Grants => self.named("grants", client.grants_all(), |grant| grant.name.to_string()).await,
            Names::Webhooks => {
                self.named("webhooks", client.webhooks_all(), |webhook| webhook.name.to_string()).await
            }
            // Handled by `names`.
            Names::Contexts => Ok(Vec::new()),
        }
    }

    async fn named<T>(
        &self,
        noun: &str,
        request: impl Future<Output = Result<Vec<T>, ClientError>>,
        name: impl Fn(&T) -> String,
    ) -> Result<Vec<String>, ClientError> {
        let cached = self.cache.as_ref().and_then(|cache| cache.read(noun, Timestamp::now()));
        if let Some(names) = cached {
            return Ok(names);
        }
        let names: Vec<String> = request.await?.iter().map(name).collect();
        if let Some(cache) = &self.cache {
            cache.write(noun, &names, Timestamp::now());
        }
        Ok(names)
    }
}
