//! Generates a page with a program's commands and options: one heading for each command, with usage, description, options
//! and examples.

use clap::{Arg, Command};

use crate::markdown::{indented, plain};

/// Returns the page of a program, which starts with `introduction`.
#[must_use]
pub fn program(mut command: Command, introduction: &str) -> String {
    command.build();
    let mut text = introduction.trim_end().to_owned();
    text.push_str("\n\n");
    let global: Vec<&Arg> =
        command.get_arguments().filter(|arg| arg.is_global_set() && is_shown(arg)).collect();
    if !global.is_empty() {
        text.push_str(&format!("## Global options\n\n{}\n", options(&global)));
    }
    if let Some(after) = command.get_after_help() {
        text.push_str(&format!("{}\n", paragraphs(&after.to_string())));
    }
    let name = command.get_name().to_owned();
    for inner in visible_subcommands(&command) {
        add(inner, &format!("{name} {}", inner.get_name()), &mut text);
    }
    text
}

fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

fn add(command: &Command, path: &str, text: &mut String) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let own: Vec<&Arg> =
        command.get_arguments().filter(|arg| !arg.is_global_set() && is_shown(arg)).collect();
    text.push_str(&format!("## {path}\n\n{}\n{}\n", paragraphs(&about), indented(usage)));
    if !own.is_empty() {
        text.push_str(&format!("{}\n", options(&own)));
    }
    if let Some(after) = command.get_after_help() {
        text.push_str(&examples(&after.to_string()));
    }
    for inner in visible_subcommands(command) {
        add(inner, &format!("{path} {}", inner.get_name()), text);
    }
}

/// Formats `Example: …` on one line, `Examples:` with lines below it, or other text as notes.
fn examples(after: &str) -> String {
    let (title, block) = match after.split_once(": ").filter(|(title, _)| *title == "Example") {
        Some((title, one)) => (title, one),
        None => after.split_once(":\n").unwrap_or(("Notes", after)),
    };
    let lines = block.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    format!("{title}:\n\n{}\n", indented(&lines))
}

fn options(args: &[&Arg]) -> String {
    args.iter().map(|arg| format!("- {}\n", option(arg))).collect()
}

/// `` `-o`, `--output FORMAT`: what it does. One of … Default … Environment …``
fn option(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(|names| names.first()).filter(|_| takes_value(arg));
    let mut names: Vec<String> = arg.get_short().map(|short| format!("`-{short}`")).into_iter().collect();
    names.extend(arg.get_long().map(|long| match value {
        Some(value) => format!("`--{long} {value}`"),
        None => format!("`--{long}`"),
    }));
    if names.is_empty() {
        names.push(format!("`{}`", value.map_or(arg.get_id().as_str(), |value| value.as_str())));
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut sentences: Vec<String> =
        help.split("\n\n").map(sentence).filter(|part| !part.is_empty()).collect();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && takes_value(arg))
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), plain(&lower(&help.to_string()))),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        sentences.push(format!("One of {}.", values.join(", ")));
    }
    let default: Vec<_> = arg.get_default_values().iter().filter_map(|value| value.to_str()).collect();
    if !default.is_empty() && !arg.is_hide_default_value_set() && takes_value(arg) {
        sentences.push(format!("Default: `{}`.", default.join(",")));
    }
    if let Some(variable) = arg.get_env().and_then(|variable| variable.to_str()) {
        sentences.push(format!("Environment: `{variable}`."));
    }
    format!("{}: {}", names.join(", "), sentences.join(" "))
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn lower(text: &str) -> String {
    let mut characters = text.trim_end_matches('.').chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

fn paragraphs(text: &str) -> String {
    text.trim()
        .split("\n\n")
        .map(|part| format!("{}\n\n", sentence(part)))
        .collect::<String>()
        .trim_end()
        .to_owned()
        + "\n"
}

/// Returns the text in one line, with a full stop.
fn sentence(text: &str) -> String {
    let text = plain(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    if text.is_empty() || text.ends_with(['.', ':', '!', '?']) { text } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_usage_options_and_examples() {
        let apply = Command::new("apply")
            .about("Submit *.yaml")
            .after_help("Examples:\n  tool apply -f a\n  tool apply -f b")
            .arg(Arg::new("file").short('f').long("file").value_name("PATH").help("Which").env("TOOL_FILE"))
            .arg(Arg::new("stack").help("The stack").required(true));
        let tool = Command::new("tool").arg(
            Arg::new("quiet")
                .short('q')
                .long("quiet")
                .global(true)
                .action(clap::ArgAction::SetTrue)
                .help("Hush"),
        );
        let page = program(tool.subcommand(apply), "# Tool\n");
        assert!(page.starts_with("# Tool\n\n## Global options\n\n- `-q`, `--quiet`: Hush.\n"), "{page}");
        assert!(
            page.contains("## tool apply\n\nSubmit \\*.yaml.\n\n    tool apply [OPTIONS] <stack>\n"),
            "{page}"
        );
        assert!(page.contains("- `-f`, `--file PATH`: Which. Environment: `TOOL_FILE`.\n"), "{page}");
        assert!(page.contains("- `stack`: The stack.\n"), "{page}");
        assert!(page.ends_with("Examples:\n\n    tool apply -f a\n    tool apply -f b\n\n"), "{page}");
    }
}
