//! Barred contents.

use brokkr_api::objects::BarredContent;

use super::Listed;
use super::history::short_checksum;
use super::table::Table;
use super::text::age;

impl Listed for BarredContent {
    const NONE: &'static str = "no barred content";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .plain("CHECKSUM", |bar| short_checksum(bar.checksum))
            .plain("SEQUENCE", |bar| bar.sequence_id)
            .plain("AGE", |bar| age(bar.created_at, now))
            .plain("BY", |bar| &bar.barred_by)
            .sentence("REASON", |bar| &bar.reason)
            .wide("SHA256", |bar| bar.checksum)
    }

    fn name(&self) -> String {
        format!("bar/{}", self.checksum)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{bar, rendered};
    use super::super::whole;

    #[test]
    fn bars() {
        insta::assert_snapshot!(rendered(&whole(vec![bar(42)])));
    }
}
