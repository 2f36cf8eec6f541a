//! What could come next on a command line: a function of the definition of all commands and of the words so far.
//!
//! The scripts for shells (`completion/`) only ask and show; so every shell knows the same, and nothing is out of step with
//! the program.

use clap::{Arg, ArgAction, Command};

/// What may stand in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One of these words, each with what it means.
    Words(Vec<(String, String)>),
    /// A name that the broker or the login knows, behind `prefix`.
    Names { noun: Names, prefix: String },
    /// A file: shells know best.
    Files,
    /// Something that nobody can guess.
    Anything,
}

/// Things with names, by the word that stands for them in help texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Stacks,
    Agents,
    StacksAndAgents,
    Contexts,
    Projects,
    Grants,
    Webhooks,
}

/// `words` are those behind the program's name, up to the cursor: the last one is being typed, and may be empty.
pub fn wanted(brokkr: &Command, words: &[String]) -> Wanted {
    let Some((typed, before)) = words.split_last() else { return Wanted::Anything };
    let place = Place::behind(brokkr, before);
    if let Some(option) = place.option {
        return value_of(option, "");
    }
    if !place.only_values && typed.starts_with('-') {
        return match typed.split_once('=') {
            Some((name, _)) => option_named(place.command, name)
                .map_or(Wanted::Anything, |option| value_of(option, &format!("{name}="))),
            None => options(place.command),
        };
    }
    if place.command.has_subcommands() {
        return subcommands(place.command);
    }
    let mut values = place.command.get_positionals();
    let is_list = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
    let value = values.nth(place.values).or_else(|| place.command.get_positionals().last().filter(is_list));
    value.map_or(Wanted::Anything, |value| value_of(value, ""))
}

/// Where a command line is behind some words.
struct Place<'a> {
    command: &'a Command,
    /// That waits for its value.
    option: Option<&'a Arg>,
    /// Values without an option, so far.
    values: usize,
    /// `--` came.
    only_values: bool,
}

impl<'a> Place<'a> {
    fn behind(brokkr: &'a Command, words: &[String]) -> Self {
        let mut place = Self { command: brokkr, option: None, values: 0, only_values: false };
        for word in words {
            if place.option.take().is_some() {
                continue;
            }
            if place.only_values || !word.starts_with('-') || word == "-" {
                match place.command.find_subcommand(word) {
                    Some(inner) if !place.only_values => (place.command, place.values) = (inner, 0),
                    _ => place.values += 1,
                }
            } else if word == "--" {
                place.only_values = true;
            } else if !word.contains('=') {
                place.option = option_named(place.command, word).filter(|option| takes_value(option));
            }
        }
        place
    }
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

fn option_named<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let short = word.strip_prefix('-').and_then(|rest| rest.chars().next()).filter(|_| word.len() == 2);
    command.get_arguments().find(|option| match word.strip_prefix("--") {
        Some(long) => option.get_long() == Some(long),
        None => short.is_some() && option.get_short() == short,
    })
}

fn first_line(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn options(command: &Command) -> Wanted {
    let options = command.get_arguments().filter(|option| !option.is_hide_set());
    let named = options.filter_map(|option| {
        option.get_long().map(|long| (format!("--{long}"), first_line(option.get_help())))
    });
    Wanted::Words(named.collect())
}

fn subcommands(command: &Command) -> Wanted {
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    Wanted::Words(inner.map(|inner| (inner.get_name().to_owned(), first_line(inner.get_about()))).collect())
}

fn value_of(arg: &Arg, prefix: &str) -> Wanted {
    let possible = arg.get_possible_values();
    if !possible.is_empty() && takes_value(arg) {
        let words = possible.iter().filter(|value| !value.is_hide_set());
        let words =
            words.map(|value| (format!("{prefix}{}", value.get_name()), first_line(value.get_help())));
        return Wanted::Words(words.collect());
    }
    let name = arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
    let noun = match name.unwrap_or_default() {
        "STACK" => Names::Stacks,
        "AGENT" => Names::Agents,
        "STACK|agent/AGENT" => Names::StacksAndAgents,
        "CONTEXT" => Names::Contexts,
        "PROJECT" => Names::Projects,
        "GRANT" => Names::Grants,
        "WEBHOOK" => Names::Webhooks,
        "PATH" | "FILE" | "DIR" => return Wanted::Files,
        _ => return Wanted::Anything,
    };
    Wanted::Names { noun, prefix: prefix.to_owned() }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Args;

    fn wants(line: &str) -> Wanted {
        let mut brokkr = Args::command();
        brokkr.build();
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        wanted(&brokkr, &words)
    }

    fn words(line: &str) -> Vec<String> {
        match wants(line) {
            Wanted::Words(words) => words.into_iter().map(|(word, _)| word).collect(),
            other => panic!("{line:?} wants {other:?}"),
        }
    }

    #[test]
    fn commands_and_options_are_known_and_hidden_ones_are_not_shown() {
        assert!(words("").contains(&"apply".to_owned()) && words("").contains(&"agent".to_owned()));
        assert!(!words("").iter().any(|word| word.starts_with('_')));
        assert!(words("agent ").contains(&"label".to_owned()));
        assert!(!words("agent ").contains(&"set-status".to_owned()));
        assert!(words("status --").contains(&"--watch".to_owned()));
        assert!(words("status --").contains(&"--output".to_owned()), "what every command has");
        assert!(words("-o ").contains(&"yaml".to_owned()));
        assert!(words("--output=").contains(&"--output=wide".to_owned()));
        assert!(words("--quiet wait web --for ").contains(&"deleted".to_owned()));
    }

    #[test]
    fn names_are_asked_for_where_they_belong() {
        let names = |noun| Wanted::Names { noun, prefix: String::new() };
        for (line, noun) in [
            ("status ", Names::Stacks),
            ("history ", Names::Stacks),
            ("delete stack ", Names::Stacks),
            ("agent show ", Names::Agents),
            ("events --agent ", Names::Agents),
            ("apply --to-agent ", Names::Agents),
            ("why ", Names::StacksAndAgents),
            ("why web -a ", Names::Agents),
            ("--context ", Names::Contexts),
            ("--project ", Names::Projects),
        ] {
            assert_eq!(wants(line), names(noun), "{line:?}");
        }
        assert_eq!(wants("apply -f "), Wanted::Files);
        assert_eq!(wants("apply --to "), Wanted::Anything, "a selector");
        assert_eq!(wants("history web "), Wanted::Anything, "one stack is enough");
        let prefix = "--agent=".to_owned();
        assert_eq!(wants("events --agent="), Wanted::Names { noun: Names::Agents, prefix });
    }
}
