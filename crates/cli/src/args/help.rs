//! The first page of help: commands under headings, as in `gh`. clap itself lists them in one block.

use clap::CommandFactory as _;

use super::Args;

/// The headings and their commands, in the order in which they are shown.
const GROUPS: &[(&str, &[&str])] = &[
    ("Everyday commands", &["apply", "status", "why", "diff", "rollback", "suspend", "resume", "wait"]),
    ("Monitoring", &["events", "errors", "health"]),
    ("Resources", &["stack", "rollout", "window", "agent", "webhook"]),
    ("Access", &["project", "grant", "token", "audit"]),
    ("Administration", &["admin"]),
    ("Login", &["login", "logout", "whoami", "context"]),
    ("Other", &["version", "completion", "man"]),
];

/// Returns the definition of all commands. Use this instead of `Args::command()`.
pub fn command() -> clap::Command {
    let command = Args::command();
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}\nOptions:\n{{options}}\n\n\
         Run `brokkr COMMAND --help` for the options of a command.{{after-help}}",
        grouped(&command)
    );
    command.help_template(template)
}

fn grouped(command: &clap::Command) -> String {
    let longest = command.get_subcommands().map(|inner| inner.get_name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(&format!("{heading}:\n"));
        for inner in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {:longest$}  {about}\n", inner.get_name()));
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_exactly_one_group() {
        let shown: Vec<String> = Args::command()
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set())
            .map(|inner| inner.get_name().to_owned())
            .collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.len(), shown.len());
        grouped.sort_unstable();
        grouped.dedup();
        assert!(shown.iter().all(|name| grouped.contains(&name.as_str())), "{shown:?} {grouped:?}");
        assert_eq!(grouped.len(), shown.len());
    }
}
