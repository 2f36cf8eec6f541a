//! The versions of a stack.

use brokkr_api::ids::Checksum;
use brokkr_api::objects::DeploymentObject;

use super::Listed;
use super::table::Table;
use super::text::{age, or_dash};

impl Listed for DeploymentObject {
    const NONE: &'static str = "no versions yet";

    fn columns(table: Table<'_, Self>) -> Table<'_, Self> {
        let now = table.now();
        table
            .sorted_by_key(|object| std::cmp::Reverse(object.sequence_id))
            .plain("SEQUENCE", |object| object.sequence_id)
            .plain("AGE", |object| age(object.created_at, now))
            .plain("BY", |object| &object.submitted_by)
            .plain("RESOURCES", |object| {
                if object.is_deletion_marker { "deletion".to_owned() } else { object.resources.to_string() }
            })
            .plain("CHECKSUM", |object| {
                or_dash((!object.is_deletion_marker).then(|| short_checksum(object.checksum)))
            })
            .plain("COMMIT", |object| or_dash(object.commit.as_deref().map(short_commit)))
            .sentence("MESSAGE", |object| or_dash(object.message.as_ref()))
            .wide("TIME", |object| format!("{:.0}", object.created_at))
            .wide("SHA256", |object| object.checksum)
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
