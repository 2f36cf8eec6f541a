//! Rollbacks, and the contents that they bar.

use brokkr_api::ids::Checksum;
use brokkr_api::objects::{BarredContent, DeploymentObject, RollBack};
use http::Method;

use crate::{Client, Result};

impl Client {
    /// Rolls back a stack, given by name or id: publishes the content of an earlier version and bars the
    /// current one.
    pub async fn roll_back(&self, stack: &str, wanted: &RollBack) -> Result<DeploymentObject> {
        self.send(self.write(Method::POST, &["stacks", stack, "roll-back"]).json(wanted)?).await?.json()
    }

    /// Lists the barred contents of a stack, newest first.
    pub async fn barred_contents_all(&self, stack: &str) -> Result<Vec<BarredContent>> {
        self.all(&["stacks", stack, "barred-contents"], &[]).await
    }

    /// Allows a barred content to be submitted again.
    pub async fn lift_bar(&self, stack: &str, checksum: Checksum) -> Result<()> {
        let path = ["stacks", stack, "barred-contents", &checksum.to_string()];
        self.send(self.write(Method::DELETE, &path)).await.map(|_| ())
    }
}
