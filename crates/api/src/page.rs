//! Keyset paging: every list is bounded, and reading on never skips or repeats.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most that one page holds.
pub const LARGEST_PAGE: u32 = 500;
/// What a page holds when nothing is asked for.
pub const DEFAULT_PAGE: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Give this as `after` to read on; none at the end.
    pub next: Option<String>,
    /// How many there are on all pages, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// The order of a list. A minus turns it round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Sort {
    #[default]
    #[serde(rename = "name")]
    Name,
    #[serde(rename = "-name")]
    NameDown,
    /// Oldest first.
    #[serde(rename = "created")]
    Created,
    #[serde(rename = "-created")]
    CreatedDown,
}

impl Sort {
    #[must_use]
    pub fn is_by_name(self) -> bool {
        matches!(self, Self::Name | Self::NameDown)
    }

    #[must_use]
    pub fn is_down(self) -> bool {
        matches!(self, Self::NameDown | Self::CreatedDown)
    }
}

impl<T> Page<T> {
    /// All there is, on one page.
    #[must_use]
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None, total: None }
    }

    /// The same page of something else.
    #[must_use]
    pub fn map<U>(self, other: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(other).collect(), next: self.next, total: self.total }
    }

    /// Cuts a list that was read with one item more than `limit` to a page.
    #[must_use]
    pub fn cut(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(cursor) } else { None };
        Self { items, next, total: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_where_to_read_on_only_if_there_is_more() {
        let page = Page::cut(vec![1, 2, 3], 2, ToString::to_string);
        assert_eq!((page.items, page.next), (vec![1, 2], Some("2".to_owned())));
        let last = Page::cut(vec![3], 2, ToString::to_string);
        assert_eq!((last.items, last.next), (vec![3], None));
    }
}
