//! The versions of a stack.

use brokkr_api::ids::Checksum;
use brokkr_api::objects::DeploymentObject;

use super::table::{Table, plain, sentence, wide};
use super::text::{age, or_dash};
use super::{Listed, RenderOptions};

impl Listed for DeploymentObject {
    const NONE: &'static str = "no versions yet";

    fn table<'a>(objects: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let mut objects: Vec<&DeploymentObject> = objects.iter().collect();
        objects.sort_by_key(|object| std::cmp::Reverse(object.sequence_id));
        let columns = [
            plain("SEQUENCE"),
            plain("AGE"),
            plain("BY"),
            plain("RESOURCES"),
            plain("CHECKSUM"),
            plain("COMMIT"),
            sentence("MESSAGE"),
            wide("TIME"),
            wide("SHA256"),
        ];
        let mut table = Table::new(options, &columns);
        for object in objects {
            let (resources, checksum) = if object.is_deletion_marker {
                ("deletion".to_owned(), "-".to_owned())
            } else {
                (object.resources.to_string(), short_checksum(object.checksum))
            };
            table.row([
                object.sequence_id.to_string().into(),
                age(object.created_at, options.now).into(),
                object.submitted_by.clone().into(),
                resources.into(),
                checksum.into(),
                or_dash(object.commit.as_deref().map(short_commit)).into(),
                or_dash(object.message.clone()).into(),
                format!("{:.0}", object.created_at).into(),
                object.checksum.to_string().into(),
            ]);
        }
        table
    }

    fn name(&self) -> String {
        format!("deployment-object/{}", self.sequence_id)
    }
}

/// Returns the first digits of a checksum.
pub fn short_checksum(checksum: Checksum) -> String {
    checksum.to_string().chars().take(12).collect()
}

/// Returns the first digits of a Git commit.
fn short_commit(commit: &str) -> String {
    commit.chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{object, rendered};
    use super::super::whole;

    #[test]
    fn history() {
        let mut marker = object(43);
        marker.is_deletion_marker = true;
        let mut described = object(42);
        described.message = Some("raise the memory limit".to_owned());
        described.commit = Some("9fceb02d0ae598e95dc970b74767f19372d61af8".to_owned());
        insta::assert_snapshot!(rendered(&whole(vec![object(41), described, marker])));
    }
}
