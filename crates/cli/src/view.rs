//! Text for people, from API types: one file a noun. Time and width are passed in, so that the same answer always reads
//! the same.
//!
//! What a command answers with is a [`Show`]: it has a text for people and names for `-o name`; programs get the
//! document itself. A list of things is [`Listed`] by its items.

use brokkr_api::page::Page;
use jiff::Timestamp;
use serde::Serialize;

use self::table::Table;

pub mod admin;
pub mod agents;
pub mod approvals;
pub mod audit;
pub mod bars;
pub mod checks;
pub mod conditions;
pub mod contexts;
pub mod diff;
pub mod errors;
pub mod events;
pub mod grants;
pub mod history;
pub mod job;
pub mod preview;
pub mod progress;
pub mod projects;
pub mod reasons;
pub mod receipts;
#[cfg(test)]
pub mod samples;
pub mod stacks;
pub mod status;
pub mod table;
pub mod targets;
pub mod text;
pub mod tokens;
pub mod webhooks;
pub mod why;

/// How a text is to options.
#[derive(Clone, Copy, Debug)]
pub struct RenderOptions {
    pub now: Timestamp,
    /// More columns, and nothing is cut.
    pub wide: bool,
    pub headers: bool,
    /// What a line may take; none where nobody reads on a terminal.
    pub width: Option<usize>,
}

/// What a command answers with.
pub trait Show: Serialize {
    fn text(&self, options: &RenderOptions) -> String;
    /// `stack/web`: what other commands take.
    fn names(&self) -> Vec<String>;
}

/// Something of which there are lists.
pub trait Listed: Serialize + Sized {
    /// What is said of an empty list.
    const NONE: &'static str;
    fn table<'a>(items: &[Self], options: &'a RenderOptions) -> Table<'a>;
    fn name(&self) -> String;
}

impl<T: Listed> Show for Page<T> {
    fn text(&self, options: &RenderOptions) -> String {
        if self.items.is_empty() { T::NONE.to_owned() } else { T::table(&self.items, options).print() }
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(Listed::name).collect()
    }
}

/// A list that was read to its end.
pub fn whole<T>(items: Vec<T>) -> Page<T> {
    Page::whole(items)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// A view that nobody looked at on a narrow terminal is one that is too wide there.
    #[test]
    fn every_view_is_looked_at_in_every_width_and_with_its_colours() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/view");
        let mut views = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let Ok(source) = fs::read_to_string(&path) else { continue };
            if ["impl Show for ", "impl Listed for "].iter().any(|begins| source.contains(begins)) {
                views += 1;
                assert!(source.contains("rendered(&"), "{} has no snapshot by `samples::looks`", path.display());
            }
        }
        assert!(views >= 20, "{views}");
    }
}
