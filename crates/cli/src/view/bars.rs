//! Contents that a roll-back barred.

use brokkr_api::objects::BarredContent;

use super::history::short_checksum;
use super::table::{Table, plain, sentence, wide};
use super::text::age;
use super::{Listed, Look};

impl Listed for BarredContent {
    const NONE: &'static str = "nothing is barred";

    fn table<'a>(bars: &[Self], look: &'a Look) -> Table<'a> {
        let columns = [
            plain("CHECKSUM"),
            plain("SEQUENCE"),
            plain("AGE"),
            plain("BY"),
            sentence("REASON"),
            wide("SHA256"),
        ];
        let mut table = Table::new(look, &columns);
        for bar in bars {
            table.row([
                short_checksum(bar.checksum).into(),
                bar.sequence_id.to_string().into(),
                age(bar.created_at, look.now).into(),
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
    use super::super::samples::{bar, looks};
    use super::super::whole;

    #[test]
    fn bars() {
        insta::assert_snapshot!(looks(&whole(vec![bar(42)])));
    }
}
