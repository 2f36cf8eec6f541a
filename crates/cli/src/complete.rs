//! Completion of a command line, from the definition of the commands and the words so far.
//!
//! The shell scripts (`completion/`) only call this, so that all shells complete the same way.

use clap::{Arg, ArgAction, Command};

/// What is expected at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// One of these words, each with its description.
    Words(Vec<(String, String)>),
    /// The name of a resource or context, after `prefix`.
    Names { noun: Names, prefix: String },
    /// A file, which the shell completes.
    Files,
    /// A value that cannot be completed.
    Anything,
}

/// Resources with names, identified by their value name in help texts.
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

/// Returns what is expected after `words`, which follow the program's name. The last one is being typed and may be empty.
pub fn expected(brokkr: &Command, words: &[String]) -> Expected {
    let Some((typed, before)) = words.split_last() else { return Expected::Anything };
    let cursor = Cursor::at_end(brokkr, before);
    if let Some(option) = cursor.option {
        return value_of(option, "");
    }
    if !cursor.only_values && typed.starts_with('-') {
        return match typed.split_once('=') {
            Some((name, _)) => option_named(cursor.command, name)
                .map_or(Expected::Anything, |option| value_of(option, &format!("{name}="))),
            None => options(cursor.command),
        };
    }
    if cursor.command.has_subcommands() {
        return subcommands(cursor.command);
    }
    let mut values = cursor.command.get_positionals();
    let is_list = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
    let value = values.nth(cursor.values).or_else(|| cursor.command.get_positionals().last().filter(is_list));
    value.map_or(Expected::Anything, |value| value_of(value, ""))
}

/// The state of a command line after some words.
struct Cursor<'a> {
    command: &'a Command,
    /// The option that needs a value.
    option: Option<&'a Arg>,
    /// Number of positional values so far.
    values: usize,
    /// After `--`.
    only_values: bool,
}

impl<'a> Cursor<'a> {
    fn at_end(brokkr: &'a Command, words: &[String]) -> Self {
        let mut cursor = Self { command: brokkr, option: None, values: 0, only_values: false };
        for word in words {
            if cursor.option.take().is_some() {
                continue;
            }
            if cursor.only_values || !word.starts_with('-') || word == "-" {
                match cursor.command.find_subcommand(word) {
                    Some(inner) if !cursor.only_values => (cursor.command, cursor.values) = (inner, 0),
                    _ => cursor.values += 1,
                }
            } else if word == "--" {
                cursor.only_values = true;
            } else if !word.contains('=') {
                cursor.option = option_named(cursor.command, word).filter(|option| takes_value(option));
            }
        }
        cursor
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

fn options(command: &Command) -> Expected {
    let options = command.get_arguments().filter(|option| !option.is_hide_set());
    let named = options.filter_map(|option| {
        option.get_long().map(|long| (format!("--{long}"), first_line(option.get_help())))
    });
    Expected::Words(named.collect())
}

fn subcommands(command: &Command) -> Expected {
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    Expected::Words(inner.map(|inner| (inner.get_name().to_owned(), first_line(inner.get_about()))).collect())
}

fn value_of(arg: &Arg, prefix: &str) -> Expected {
    let possible = arg.get_possible_values();
    if !possible.is_empty() && takes_value(arg) {
        let words = possible.iter().filter(|value| !value.is_hide_set());
        let words =
            words.map(|value| (format!("{prefix}{}", value.get_name()), first_line(value.get_help())));
        return Expected::Words(words.collect());
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
        "PATH" | "FILE" | "DIR" => return Expected::Files,
        _ => return Expected::Anything,
    };
    Expected::Names { noun, prefix: prefix.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    fn after(line: &str) -> Expected {
        let mut brokkr = args::command();
        brokkr.build();
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        expected(&brokkr, &words)
    }

    fn words(line: &str) -> Vec<String> {
        match after(line) {
            Expected::Words(words) => words.into_iter().map(|(word, _)| word).collect(),
            other => panic!("{line:?} expects {other:?}"),
        }
    }

    #[test]
    fn commands_and_options_are_completed_except_hidden_ones() {
        assert!(words("").contains(&"apply".to_owned()) && words("").contains(&"agent".to_owned()));
        assert!(!words("").iter().any(|word| word.starts_with('_')));
        assert!(words("agent ").contains(&"label".to_owned()));
        assert!(words("status --").contains(&"--watch".to_owned()));
        assert!(words("status --").contains(&"--output".to_owned()), "global options");
        assert!(words("-o ").contains(&"yaml".to_owned()));
        assert!(words("--output=").contains(&"--output=wide".to_owned()));
        assert!(words("--quiet wait web --for ").contains(&"deleted".to_owned()));
    }

    #[test]
    fn names_are_completed_where_they_are_expected() {
        let names = |noun| Expected::Names { noun, prefix: String::new() };
        for (line, noun) in [
            ("status ", Names::Stacks),
            ("stack history ", Names::Stacks),
            ("stack delete ", Names::Stacks),
            ("apply ", Names::Stacks),
            ("events ", Names::Stacks),
            ("agent preview env=prod ", Names::Stacks),
            ("agent show ", Names::Agents),
            ("events --agent ", Names::Agents),
            ("apply web --to-agent ", Names::Agents),
            ("why ", Names::StacksAndAgents),
            ("why web -a ", Names::Agents),
            ("--context ", Names::Contexts),
            ("--project ", Names::Projects),
        ] {
            assert_eq!(after(line), names(noun), "{line:?}");
        }
        assert_eq!(after("apply web -f "), Expected::Files);
        assert_eq!(after("apply web --to "), Expected::Anything, "a selector");
        assert_eq!(after("stack history web "), Expected::Anything, "one stack is enough");
        let prefix = "--agent=".to_owned();
        assert_eq!(after("events --agent="), Expected::Names { noun: Names::Agents, prefix });
    }
}
