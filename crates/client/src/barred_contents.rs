//! Rolling back, and the contents that this bars.

use brokkr_api::ids::Checksum;
use brokkr_api::objects::{BarredContent, DeploymentObject, RollBack};
use http::Method;

use crate::{Client, Result};

impl Client {
    /// The content of an earlier version becomes a new one, and what it replaces is barred. By name or id.
    pub async fn roll_back(&self, stack: &str, wanted: &RollBack) -> Result<DeploymentObject> {
        self.send(self.write(Method::POST, &["stacks", stack, "roll-back"]).json(wanted)?).await?.json()
    }

    /// What is refused on a stack, the latest first.
    pub async fn barred_contents_all(&self, stack: &str) -> Result<Vec<BarredContent>> {
        self.all(&["stacks", stack, "barred-contents"], &[]).await
    }

    /// Lets a barred content be submitted again.
    pub async fn lift_bar(&self, stack: &str, checksum: Checksum) -> Result<()> {
        let path = ["stacks", stack, "barred-contents", &checksum.to_string()];
        self.send(self.write(Method::DELETE, &path)).await.map(|_| ())
    }
}
