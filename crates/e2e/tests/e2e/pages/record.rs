//! Writes the real output into the page, where the page shows an output.

use std::collections::BTreeMap;

use super::compare::{ids, renumbered};
use super::page::Page;
use super::shell::PageOutput;

/// Returns the page with new outputs. An output that the page does not show, does not compare, or shows only
/// in part (`…`) is not changed.
pub fn recorded(page: &Page, output: &PageOutput) -> String {
    let ids = ids(output);
    let commands = page.commands();
    let shown = commands.iter().zip(&output.outputs).filter(|(command, _)| {
        command.is_compared && !command.shown.is_empty() && !command.shown.iter().any(|line| line == "…")
    });
    // By the first line of the output: the number of lines to replace, and the new text.
    let changes: BTreeMap<usize, (usize, String)> = shown
        .map(|(command, output)| {
            let first = command.line + command.text.lines().count();
            (first, (command.shown.len(), renumbered(output, ids.as_ref())))
        })
        .collect();
    let mut text = String::new();
    let mut to_leave_out = 0;
    for (line, content) in (1..).zip(page.text.lines()) {
        if let Some((before, printed)) = changes.get(&line) {
            to_leave_out = *before;
            for line in printed.trim_end().lines() {
                text.push_str(&format!("{}\n", line.trim_end()));
            }
        }
        if to_leave_out > 0 {
            to_leave_out -= 1;
        } else {
            text.push_str(&format!("{content}\n"));
        }
    }
    text
}
