//! Manual pages, from the definition of the commands: a page for each.

use clap::{Arg, Command};

/// A page: the name of its file, and its text in roff.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub file: String,
    pub text: String,
}

/// Of a command and all commands in it; `brokkr` is built.
pub fn pages(brokkr: &Command, version: &str) -> Vec<Page> {
    let mut pages = Vec::new();
    add(brokkr, brokkr.get_name(), version, &mut pages);
    pages
}

fn add(command: &Command, path: &str, version: &str, pages: &mut Vec<Page>) {
    let name = path.replace(' ', "-");
    pages.push(Page { file: format!("{name}.1"), text: page(command, path, &name, version) });
    for inner in inside(command) {
        add(inner, &format!("{path} {}", inner.get_name()), version, pages);
    }
}

fn inside(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn page(command: &Command, path: &str, name: &str, version: &str) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!(
        ".TH {} 1 \"\" \"brokkr {version}\" \"Brokkr\"\n.SH NAME\n{} \\- {}\n",
        escaped(&name.to_uppercase()),
        escaped(name),
        escaped(about.trim_end_matches('.'))
    );
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    text.push_str(&format!(".SH SYNOPSIS\n.nf\n{}\n.fi\n", lines(usage)));
    let long = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    text.push_str(&format!(".SH DESCRIPTION\n{}\n", paragraphs(&long)));
    let (own, global): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).partition(|arg| !arg.is_global_set());
    section("OPTIONS", &own, &mut text);
    if path == "brokkr" {
        section("GLOBAL OPTIONS", &global, &mut text);
    }
    if inside(command).next().is_some() {
        text.push_str(".SH COMMANDS\n");
        for inner in inside(command) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            let page = format!("{name}-{}", inner.get_name());
            text.push_str(&format!(".TP\n\\fB{}\\fR(1)\n{}\n", escaped(&page), escaped(&about)));
        }
    }
    if let Some(after) = command.get_after_help() {
        text.push_str(&format!(".SH NOTES\n.nf\n{}\n.fi\n", lines(&after.to_string())));
    }
    if let Some((parent, _)) = path.rsplit_once(' ') {
        text.push_str(&format!(".SH SEE ALSO\n\\fB{}\\fR(1)\n", escaped(&parent.replace(' ', "-"))));
    }
    text
}

fn section(title: &str, args: &[&Arg], text: &mut String) {
    if args.is_empty() {
        return;
    }
    text.push_str(&format!(".SH {title}\n"));
    for arg in args {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!(".TP\n{}\n{}\n", heading(arg), paragraphs(&help)));
        let values: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set() && arg.get_action().takes_values())
            .map(|value| value.get_name().to_owned())
            .collect();
        if !values.is_empty() {
            text.push_str(&format!(".br\nOne of: {}.\n", escaped(&values.join(", "))));
        }
        let default = arg.get_default_values().iter().filter_map(|value| value.to_str()).collect::<Vec<_>>();
        if !default.is_empty() && !arg.is_hide_default_value_set() && arg.get_action().takes_values() {
            text.push_str(&format!(".br\nDefault: {}.\n", escaped(&default.join(", "))));
        }
        if let Some(variable) = arg.get_env().and_then(|variable| variable.to_str()) {
            text.push_str(&format!(".br\nEnvironment: {}.\n", escaped(variable)));
        }
    }
}

/// `-o, --output FORMAT`
fn heading(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("\\fB\\-{short}\\fR"));
    let long = arg.get_long().map(|long| format!("\\fB\\-\\-{}\\fR", escaped(long)));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let value = arg.get_value_names().and_then(|names| names.first()).map(|name| escaped(name));
    let value = value.filter(|_| arg.get_action().takes_values()).map(|value| format!("\\fI{value}\\fR"));
    match (names.is_empty(), value) {
        (true, value) => value.unwrap_or_else(|| escaped(arg.get_id().as_str())),
        (false, Some(value)) => format!("{} {value}", names.join(", ")),
        (false, None) => names.join(", "),
    }
}

fn paragraphs(text: &str) -> String {
    text.trim().split("\n\n").map(|part| lines(part.trim())).collect::<Vec<_>>().join("\n.PP\n")
}

fn lines(text: &str) -> String {
    text.lines().map(escaped).collect::<Vec<_>>().join("\n")
}

/// Roff takes a backslash for a command, a dot or quote at the beginning of a line too, and a dash for a hyphen.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Args;

    fn all() -> Vec<Page> {
        let mut brokkr = Args::command();
        brokkr.build();
        pages(&brokkr, "0.1.0")
    }

    #[test]
    fn every_command_has_a_page() {
        let pages = all();
        let files: Vec<&str> = pages.iter().map(|page| page.file.as_str()).collect();
        for file in ["brokkr.1", "brokkr-apply.1", "brokkr-agent-label.1", "brokkr-delete-stack.1"] {
            assert!(files.contains(&file), "{file} is not in {files:?}");
        }
        assert!(!files.iter().any(|file| file.contains("__") || file.contains("help")), "{files:?}");
        assert!(pages.iter().all(|page| page.text.starts_with(".TH BROKKR")));
    }

    #[test]
    fn a_page() {
        insta::assert_snapshot!(all().into_iter().find(|page| page.file == "brokkr-wait.1").unwrap().text);
        assert_eq!(escaped(".so /etc/passwd"), "\\&.so /etc/passwd");
    }
}
