//! `brokkr man DIR`

use std::path::Path;

use crate::args::{self, Man};
use crate::failure::{Exit, Failure, Result};
use crate::printer::Printer;
use crate::view::text::count;

pub fn run(args: &Man, printer: Printer) -> Result {
    let folder = args.folder.display();
    let files = write(&args.folder)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write to {folder}: {error}")))?;
    let document = serde_json::json!({"folder": args.folder, "files": files});
    printer
        .done(&document, folder.to_string(), || format!("{} written to {folder}", count(files.len(), "page")))
}

/// Writes one page per command and returns their file names.
fn write(folder: &Path) -> std::io::Result<Vec<String>> {
    std::fs::create_dir_all(folder)?;
    let mut brokkr = args::command().disable_help_subcommand(true);
    brokkr.build();
    let mut files = Vec::new();
    write_pages(&brokkr, folder, &mut files)?;
    Ok(files)
}

fn write_pages(command: &clap::Command, folder: &Path, files: &mut Vec<String>) -> std::io::Result<()> {
    let man = clap_mangen::Man::new(command.clone()).manual("Brokkr");
    man.generate_to(folder)?;
    files.push(man.get_filename());
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, folder, files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let files = write(folder.path()).unwrap();
        for file in ["brokkr.1", "brokkr-apply.1", "brokkr-agent-label.1", "brokkr-stack-delete.1"] {
            assert!(files.iter().any(|name| name == file), "{file} is not in {files:?}");
        }
        assert!(!files.iter().any(|file| file.contains("__") || file.contains("help")), "{files:?}");
        let page = std::fs::read_to_string(folder.path().join("brokkr-wait.1")).unwrap();
        assert!(page.contains(".TH") && page.contains("Wait until a version reaches every agent"), "{page}");
    }
}
