//! The versions of a stack.

use brokkr_api::ids::Checksum;
use brokkr_api::objects::DeploymentObject;

use super::table::{Table, plain, wide};
use super::text::age;
use super::{Listed, RenderOptions};

impl Listed for DeploymentObject {
    const NONE: &'static str = "nothing was submitted yet";

    fn table<'a>(objects: &[Self], options: &'a RenderOptions) -> Table<'a> {
        let mut objects: Vec<&DeploymentObject> = objects.iter().collect();
        objects.sort_by_key(|object| std::cmp::Reverse(object.sequence_id));
        let columns = [
            plain("SEQUENCE"),
            plain("AGE"),
            plain("BY"),
            plain("RESOURCES"),
            plain("CHECKSUM"),
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

/// Enough of it to tell versions apart.
pub fn short_checksum(checksum: Checksum) -> String {
    checksum.to_string().chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{rendered, object};
    use super::super::whole;

    #[test]
    fn history() {
        let mut marker = object(43);
        marker.is_deletion_marker = true;
        insta::assert_snapshot!(rendered(&whole(vec![object(41), object(42), marker])));
    }
}
