//! Keyset paging: every list is bounded, and reading the next page never skips or repeats items.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The maximum number of items on a page.
pub const LARGEST_PAGE: u32 = 500;
/// The number of items on a page if the request does not set a limit.
pub const DEFAULT_PAGE: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Pass this as `after` to read the next page; null at the end.
    pub next: Option<String>,
    /// The number of items on all pages, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// The order of a list. A minus sign reverses it.
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
    /// Returns a page with all items.
    #[must_use]
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None, total: None }
    }

    /// Converts every item of the page.
    #[must_use]
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(convert).collect(), next: self.next, total: self.total }
    }

    /// Makes a page from a list that was read with a limit of one more than `limit`.
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
    fn a_page_has_a_cursor_only_if_there_are_more_items() {
        let page = Page::cut(vec![1, 2, 3], 2, ToString::to_string);
        assert_eq!((page.items, page.next), (vec![1, 2], Some("2".to_owned())));
        let last = Page::cut(vec![3], 2, ToString::to_string);
        assert_eq!((last.items, last.next), (vec![3], None));
    }
}
