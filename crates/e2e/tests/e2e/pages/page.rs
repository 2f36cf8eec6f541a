//! Parses a page: the setting of its commands, the commands, and their expected output.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The setting of a page's commands: `<!-- test: dev-fleet -->`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The fleet of `cargo xtask dev`.
    DevFleet,
    /// The test in `restoring.rs`.
    Restoring,
}

#[derive(Debug)]
pub struct Page {
    /// The path from the root of the repository.
    pub name: String,
    pub text: String,
    pub setting: Option<Setting>,
    pub blocks: Vec<Block>,
}

/// A fenced block.
#[derive(Debug)]
pub struct Block {
    /// The line where it begins, counted from 1.
    pub line: usize,
    /// The info string of the fence, such as `console,ignore-output`.
    pub info: String,
    /// Why it is not run: `<!-- not run: … -->` in the line above.
    pub not_run: Option<String>,
    pub lines: Vec<String>,
}

/// One command of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// The line where it is, counted from 1.
    pub line: usize,
    /// The text; several lines if it continues after `> `.
    pub text: String,
    /// The expected output; empty if the page shows none.
    pub shown: Vec<String>,
    /// Whether the output is compared.
    pub is_compared: bool,
}

impl Block {
    pub fn language(&self) -> &str {
        self.info.split(',').next().unwrap_or_default()
    }

    pub fn is_console(&self) -> bool {
        self.language() == "console"
    }

    fn commands(&self) -> Vec<Command> {
        let mut commands: Vec<Command> = Vec::new();
        for (line, text) in (self.line + 1..).zip(&self.lines) {
            if let Some(command) = text.strip_prefix("$ ") {
                commands.push(Command {
                    line,
                    text: command.to_owned(),
                    shown: Vec::new(),
                    is_compared: !self.info.contains("ignore-output"),
                });
            } else if let Some(last) = commands.last_mut() {
                match text.strip_prefix("> ").filter(|_| last.shown.is_empty()) {
                    Some(more) => last.text.push_str(&format!("\n{more}")),
                    None => last.shown.push(text.clone()),
                }
            }
        }
        commands
    }
}

impl Page {
    pub fn read(root: &Path, path: &Path) -> Result<Self> {
        let name = path.strip_prefix(root)?.display().to_string();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        Self::parse(name, text)
    }

    fn parse(name: String, text: String) -> Result<Self> {
        let setting = match comment(&text, "test: ") {
            None => None,
            Some("dev-fleet") => Some(Setting::DevFleet),
            Some("restoring") => Some(Setting::Restoring),
            Some(other) => bail!("{name}: there is no setting {other:?}"),
        };
        let mut blocks: Vec<Block> = Vec::new();
        let (mut is_inside, mut before) = (false, "");
        for (line, content) in (1..).zip(text.lines()) {
            if let Some(info) = content.strip_prefix("```") {
                if !is_inside {
                    let not_run = comment(before, "not run: ").map(str::to_owned);
                    blocks.push(Block { line, info: info.to_owned(), not_run, lines: Vec::new() });
                }
                is_inside = !is_inside;
            } else if let Some(block) = blocks.last_mut().filter(|_| is_inside) {
                block.lines.push(content.to_owned());
            }
            before = content;
        }
        Ok(Self { name, text, setting, blocks })
    }

    /// Returns the commands in the order in which they are typed.
    pub fn commands(&self) -> Vec<Command> {
        self.blocks
            .iter()
            .filter(|block| block.is_console() && block.not_run.is_none())
            .flat_map(Block::commands)
            .collect()
    }
}

/// Returns the rest of a comment with this prefix.
fn comment<'a>(text: &'a str, begins: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<!-- {begins}"))?;
    Some(rest.split_once(" -->")?.0)
}

#[test]
fn a_page_is_parsed_into_its_setting_commands_and_outputs() {
    let text = "# T\n<!-- test: dev-fleet -->\n\n```console\n$ a\nout\n$ b <<X\n> c\n> X\n```\n<!-- not run: no -->\n\
                ```sh\nd\n```\n```console,ignore-output\n$ e\nf\n```\n";
    let page = Page::parse("t.md".into(), text.into()).expect("it can be read");
    assert_eq!(page.setting, Some(Setting::DevFleet));
    let commands = page.commands();
    let typed: Vec<_> = commands.iter().map(|one| (one.line, one.text.as_str(), one.is_compared)).collect();
    assert_eq!(typed, [(5, "a", true), (7, "b <<X\nc\nX", true), (16, "e", false)]);
    assert_eq!(commands[0].shown, ["out"]);
    assert_eq!(page.blocks[1].not_run.as_deref(), Some("no"));
    assert!(Page::parse("t.md".into(), "<!-- test: nowhere -->".into()).is_err());
}
