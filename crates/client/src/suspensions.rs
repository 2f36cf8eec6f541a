//! Suspensions: what agents leave alone for some time.

use brokkr_api::page::Page;
use brokkr_api::suspensions::{EndSuspensions, NewSuspension, Suspension};
use http::Method;

use crate::{Client, Result};

impl Client {
    /// Returns the suspensions of the stack, newest first, with those that have ended.
    pub async fn suspensions_all(&self, stack: &str) -> Result<Vec<Suspension>> {
        self.all(&["stacks", stack, "suspensions"], &[]).await
    }

    pub async fn suspend(&self, stack: &str, new: &NewSuspension) -> Result<Suspension> {
        let request = self.write(Method::POST, &["stacks", stack, "suspensions"]);
        self.send(request.json(new)?).await?.json()
    }

    /// Ends the suspensions of the stack, or one of them. Returns those that it ended.
    pub async fn resume(&self, stack: &str, end: &EndSuspensions) -> Result<Page<Suspension>> {
        let request = self.write(Method::POST, &["stacks", stack, "resume"]);
        self.send(request.json(end)?).await?.json()
    }
}
