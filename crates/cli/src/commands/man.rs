//! `brokkr man DIR`

use clap::CommandFactory as _;

use crate::args::{Args, Man};
use crate::failure::{Exit, Failure};
use crate::man::pages;
use crate::printer::Printer;
use crate::view::text::count;

pub fn run(args: &Man, printer: Printer) -> Result<(), Failure> {
    let mut brokkr = Args::command();
    brokkr.build();
    let folder = args.folder.display();
    let failed =
        |error: std::io::Error| Failure::new(Exit::Failed, format!("cannot write to {folder}: {error}"));
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    let pages = pages(&brokkr, env!("CARGO_PKG_VERSION"));
    for page in &pages {
        std::fs::write(args.folder.join(&page.file), &page.text).map_err(failed)?;
    }
    let files: Vec<&str> = pages.iter().map(|page| page.file.as_str()).collect();
    let document = serde_json::json!({"folder": args.folder, "files": files});
    printer
        .done(&document, folder.to_string(), || format!("{} written to {folder}", count(files.len(), "page")))
}
