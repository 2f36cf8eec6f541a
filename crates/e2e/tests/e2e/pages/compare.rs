//! Compares the expected output of a page with the real one, except for times, ids, column widths and races.

use std::ops::RangeInclusive;

use super::page::{Command, Page};
use super::shell::PageOutput;

/// Returns a line for each command with a different output.
pub fn differences(page: &Page, output: &PageOutput) -> Vec<String> {
    let ids = ids(output);
    let commands = page.commands();
    let compared = commands
        .iter()
        .zip(&output.outputs)
        .filter(|(command, _)| command.is_compared && !command.shown.is_empty());
    compared.filter_map(|(command, output)| difference(command, &renumbered(output, ids.as_ref()))).collect()
}

fn difference(command: &Command, printed: &str) -> Option<String> {
    let (mut shown, mut seen) = (
        compared_lines(command, command.shown.iter().map(String::as_str)),
        compared_lines(command, printed.lines()),
    );
    let is_part = shown.iter().any(|line| line == "…");
    shown.retain(|line| line != "…");
    if races(command) {
        shown.sort();
        seen.sort();
    }
    let same = if is_part { contains_in_order(&seen, &shown) } else { seen == shown };
    (!same).then(|| {
        format!(
            "{}: `{}`\nshown:\n  {}\nprinted:\n  {}\nof\n{printed}",
            command.line,
            command.text,
            shown.join("\n  "),
            seen.join("\n  ")
        )
    })
}

/// Returns the lines that have to be equal. Indented lines of a command that waits show its progress and are left out.
fn compared_lines<'a>(command: &Command, lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines
        .filter(|line| !(line.trim().is_empty() || (waits(command) && line.starts_with(' '))))
        .map(normal)
        .collect()
}

fn waits(command: &Command) -> bool {
    command.text.contains("--wait") || command.text.contains("brokkr wait")
}

/// Two agents do not report in a fixed order.
fn races(command: &Command) -> bool {
    waits(command) || command.text.contains("brokkr events")
}

fn contains_in_order(seen: &[String], shown: &[String]) -> bool {
    let mut seen = seen.iter();
    shown.iter().all(|line| seen.any(|other| other == line))
}

/// Normalises spaces, and replaces words that differ from run to run.
pub fn normal(line: &str) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(word).collect();
    for at in 1..words.len() {
        let is_unit = ["s", "min", "h", "ms"].contains(&words[at].trim_end_matches([',', ';', ')', '.']));
        if is_unit && words[at - 1].trim_start_matches('(').chars().all(|c| c.is_ascii_digit() || c == '.') {
            "TIME".clone_into(&mut words[at - 1]);
        }
    }
    // Until the engine of rollouts has looked, it has not counted the agents, and has released nothing.
    for at in 0..words.len() {
        if let [released, to, none, of, all, ..] = &mut words[at..]
            && [released, to, none, of].map(|word| word.as_str()) == ["released", "to", "0", "of"]
        {
            "N".clone_into(all);
        }
    }
    words.join(" ")
}

fn word(word: &str) -> String {
    let bare = word.trim_matches(['(', ')', '"', '\'', ',', ';', ':', '.', '`']);
    let shown = if is_duration(bare) {
        "TIME"
    } else if is_timestamp(bare) {
        "WHEN"
    } else if is_hex(bare) {
        "HASH"
    } else if bare.starts_with("https://127.0.0.1:") {
        "ADDRESS"
    } else if bare.starts_with("brk") && bare.contains('_') && bare.len() > 20 {
        "SECRET"
    } else {
        return word.to_owned();
    };
    word.replace(bare, shown)
}

/// `4s`, `1m5s`, `250ms`
fn is_duration(word: &str) -> bool {
    let mut rest = word;
    while !rest.is_empty() {
        let unit_and_rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let units = ["ms", "µs", "us", "s", "m", "h", "d", "y"];
        let Some(unit) = units.iter().find(|unit| unit_and_rest.starts_with(**unit)) else { return false };
        if unit_and_rest.len() == rest.len() {
            return false;
        }
        rest = &unit_and_rest[unit.len()..];
    }
    !word.is_empty()
}

fn is_timestamp(word: &str) -> bool {
    word.len() >= 20 && word.starts_with("20") && word.contains('T') && word.ends_with('Z')
}

/// Returns whether a word is a checksum, a UUID or another generated id.
fn is_hex(word: &str) -> bool {
    word.len() >= 12
        && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        && word.contains(|c: char| c.is_ascii_digit())
}

/// Returns the sequence ids that the page used.
pub fn ids(output: &PageOutput) -> Option<RangeInclusive<u64>> {
    let all = output.outputs.join("\n");
    let used = all.split("ubmitted as version ").skip(1).filter_map(|rest| {
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok())
    });
    let used: Vec<u64> = used.collect();
    Some(*used.iter().min()?..=*used.iter().max()?)
}

/// Renumbers sequence ids from 1 on every page. Columns keep their positions.
pub fn renumbered(output: &str, ids: Option<&RangeInclusive<u64>>) -> String {
    let Some(ids) = ids else { return output.to_owned() };
    let characters: Vec<char> = output.chars().chain(['\n']).collect();
    let (mut text, mut digits, mut before, mut shorter) = (String::new(), String::new(), ' ', 0);
    for (at, &character) in characters.iter().enumerate() {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        match digits.parse::<u64>() {
            // A number inside a word, such as a checksum, is not an id.
            Ok(id)
                if ids.contains(&id)
                    && !before.is_ascii_alphanumeric()
                    && !character.is_ascii_alphanumeric() =>
            {
                let id = (id - ids.start() + 1).to_string();
                shorter += digits.len() - id.len();
                text.push_str(&id);
            }
            _ => text.push_str(&digits),
        }
        digits.clear();
        if character.is_whitespace() {
            let is_column = character == ' ' && characters.get(at + 1) == Some(&' ');
            text.extend(std::iter::repeat_n(' ', if is_column { shorter } else { 0 }));
            shorter = 0;
        }
        text.push(character);
        before = character;
    }
    text.pop();
    text
}

#[test]
fn times_ids_and_widths_do_not_count_and_everything_else_does() {
    let same = [
        ("web   42  4s", "web 42 1m5s"),
        ("(sha256 e1a0b759b3b0)", "(sha256 0123456789ab)"),
        ("gone 2026-03-01T12:00:41Z nothing", "gone 2027-03-01T12:00:00Z nothing"),
        ("last seen 4 s ago", "last seen 120 s ago"),
        (
            "(wave 1 of 2, released to 0 of 0 agents, 0 bad)",
            "(wave 1 of 2, released to 0 of 2 agents, 0 bad)",
        ),
    ];
    for (one, other) in same {
        assert_eq!(normal(one), normal(other));
    }
    assert_ne!(normal("3/4 ready"), normal("4/4 ready"));
    assert_ne!(normal("healthy"), normal("applied"));
    assert_ne!(normal("released to 1 of 2 agents"), normal("released to 2 of 2 agents"));
    assert_ne!(normal("released to 0 of 2 agents"), normal("released to 1 of 2 agents"));
    let ids = Some(101..=103);
    assert_eq!(renumbered("101/102   4\n", ids.as_ref()), "1/2       4\n");
    assert_eq!(
        renumbered("submitted as version 101, has 102/103; 104 of 10101 in e101f", ids.as_ref()),
        "submitted as version 1, has 2/3; 104 of 10101 in e101f"
    );
}
