//! `brokkr completion`, and the question that its scripts ask.

use std::time::Duration;

use brokkr_client::{Client, ClientError};
use clap::CommandFactory as _;

use crate::args::{Args, Complete, Completion, Global, Shell};
use crate::complete::{Names, Wanted, wanted};
use crate::config::Folder;
use crate::connect::connect_once;
use crate::failure::Failure;
use crate::printer::Printer;

/// Whoever presses a key waits no longer than this.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn script(args: &Completion, printer: Printer) -> Result<(), Failure> {
    let script = match args.shell {
        Shell::Bash => include_str!("../completion/brokkr.bash"),
        Shell::Zsh => include_str!("../completion/brokkr.zsh"),
        Shell::Fish => include_str!("../completion/brokkr.fish"),
    };
    printer.data(script.trim_end())
}

/// One candidate a line, with what it means behind a tab. Whatever goes wrong, nothing is said: somebody is typing.
pub async fn answer(args: Complete, global: &Global, printer: Printer) -> Result<(), Failure> {
    let mut brokkr = Args::command();
    brokkr.build();
    let typed = args.words.last().cloned().unwrap_or_default();
    let candidates = match wanted(&brokkr, &args.words) {
        Wanted::Words(words) => words,
        Wanted::Names { noun, prefix } => {
            let names = tokio::time::timeout(PATIENCE, names(noun, &args.words, global)).await;
            names
                .unwrap_or_default()
                .into_iter()
                .map(|name| (format!("{prefix}{name}"), String::new()))
                .collect()
        }
        Wanted::Files | Wanted::Anything => Vec::new(),
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
    // What was typed so far says which broker is meant.
    let said = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    let mut global = global.clone();
    global.context = said("--context").or(global.context);
    global.server = said("--server").and_then(|server| server.parse().ok()).or(global.server);
    global.project = said("--project").and_then(|project| project.parse().ok()).or(global.project);
    let Ok(client) = connect_once(&global) else { return Vec::new() };
    read(noun, &client).await.unwrap_or_default()
}

async fn read(noun: Names, client: &Client) -> Result<Vec<String>, ClientError> {
    let stacks = async || -> Result<Vec<String>, ClientError> {
        Ok(client.stacks_all().await?.into_iter().map(|stack| stack.name.to_string()).collect())
    };
    let agents = async || -> Result<Vec<String>, ClientError> {
        Ok(client.agents_all().await?.into_iter().map(|agent| agent.name.to_string()).collect())
    };
    match noun {
        Names::Stacks => stacks().await,
        Names::Agents => agents().await,
        Names::StacksAndAgents => {
            let agents = agents().await?.into_iter().map(|agent| format!("agent/{agent}"));
            Ok(stacks().await?.into_iter().chain(agents).collect())
        }
        Names::Projects => {
            Ok(client.projects_all().await?.into_iter().map(|it| it.name.to_string()).collect())
        }
        Names::Grants => Ok(client.grants_all().await?.into_iter().map(|it| it.name.to_string()).collect()),
        Names::Webhooks => {
            Ok(client.webhooks_all().await?.into_iter().map(|it| it.name.to_string()).collect())
        }
        Names::Contexts => Ok(Vec::new()),
    }
}
