//! Text from API types, one file per noun. Time and width are passed in, so that the output is reproducible.
//!
//! The result of a command implements [`Show`]: text for people, names for `-o name`, and itself as a document. Items of
//! lists implement [`Listed`].

use brokkr_api::page::Page;
use jiff::Timestamp;
use serde::Serialize;

use self::table::Table;

pub mod admin;
pub mod agent_upgrades;
pub mod agents;
pub mod approvals;
pub mod audit;
pub mod bars;
pub mod checks;
pub mod conditions;
pub mod contexts;
pub mod course;
pub mod diff;
pub mod errors;
pub mod events;
pub mod grants;
pub mod health;
pub mod health_rules;
pub mod history;
pub mod hold;
pub mod job;
pub mod preview;
pub mod progress;
pub mod projects;
pub mod reasons;
pub mod receipts;
pub mod rollout_policies;
pub mod rollouts;
#[cfg(test)]
pub mod samples;
pub mod stacks;
pub mod status;
pub mod suspensions;
pub mod table;
pub mod targets;
pub mod text;
pub mod tokens;
pub mod webhooks;
pub mod why;
pub mod windows;

/// How a text is rendered.
#[derive(Clone, Copy, Debug)]
pub struct RenderOptions {
    pub now: Timestamp,
    /// Table with more columns, not truncated.
    pub wide: bool,
    pub headers: bool,
    /// Width of a line; none without a terminal.
    pub width: Option<usize>,
}

/// The result of a command.
pub trait Show: Serialize {
    fn text(&self, options: &RenderOptions) -> String;
    /// Names such as `stack/web`, which other commands accept.
    fn names(&self) -> Vec<String>;
}

/// An item of a list.
pub trait Listed: Serialize + Sized {
    /// Text for an empty list.
    const NONE: &'static str;
    /// Adds the columns.
    fn columns(table: Table<'_, Self>) -> Table<'_, Self>;
    fn name(&self) -> String;
}

impl<T: Listed> Show for Page<T> {
    fn text(&self, options: &RenderOptions) -> String {
        if self.items.is_empty() {
            return T::NONE.to_owned();
        }
        T::columns(Table::new(options, &self.items)).print()
    }

    fn names(&self) -> Vec<String> {
        self.items.iter().map(Listed::name).collect()
    }
}

/// Returns a complete list.
pub fn whole<T>(items: Vec<T>) -> Page<T> {
    Page::whole(items)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Every view needs a snapshot in all widths.
    #[test]
    fn every_view_has_a_snapshot_in_every_width_and_with_colours() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/view");
        let mut views = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let Ok(source) = fs::read_to_string(&path) else { continue };
            if ["impl Show for ", "impl Listed for "].iter().any(|begins| source.contains(begins)) {
                views += 1;
                assert!(
                    source.contains("rendered(&"),
                    "{} has no snapshot by `samples::rendered`",
                    path.display()
                );
            }
        }
        assert!(views >= 20, "{views}");
    }
}
