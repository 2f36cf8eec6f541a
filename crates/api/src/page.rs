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
}

impl<T> Page<T> {
    /// Cuts a list that was read with one item more than `limit` to a page.
    #[must_use]
    pub fn cut(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(cursor) } else { None };
        Self { items, next }
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
