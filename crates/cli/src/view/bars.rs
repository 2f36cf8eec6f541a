//! Barred contents.

use brokkr_api::objects::BarredContent;

use super::history::short_checksum;
use super::table::{Table, plain, sentence, wide};
use super::text::age;
use super::{Listed, RenderOptions};

impl Listed for BarredContent {
    const NONE: &'static str = "no barred content";

    fn table<'a>(bars: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let columns = [
            plain("CHECKSUM"),
            plain("SEQUENCE"),
            plain("AGE"),
            plain("BY"),
            sentence("REASON"),
            wide("SHA256"),
        ];
        let mut table = Table::new(options, &columns);
        for bar in bars {
            table.row([
                short_checksum(bar.checksum).into(),
                bar.sequence_id.to_string().into(),
                age(bar.created_at, options.now).into(),
                bar.barred_by.clone().into(),
                bar.reason.clone().into(),
                bar.checksum.to_string().into(),
            ]);
        }
        table
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
