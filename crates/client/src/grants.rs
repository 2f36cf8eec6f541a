//! Grants, by name: which agents a project may use.

use brokkr_api::grants::{ProjectGrant, PutGrant};
use http::Method;

use crate::page::expecting;
use crate::{Client, Result};

impl Client {
    pub async fn grants_all(&self) -> Result<Vec<ProjectGrant>> {
        self.all(&["grants"], &[]).await
    }

    pub async fn grant(&self, grant: &str) -> Result<ProjectGrant> {
        self.send(self.read(&["grants", grant])).await?.json()
    }

    /// Creates or replaces a grant. `expect` confirms the number of (stack, agent) pairs that it no longer
    /// covers.
    pub async fn put_grant(&self, grant: &str, put: &PutGrant, expect: Option<u64>) -> Result<ProjectGrant> {
        let request = self.write(Method::PUT, &["grants", grant]).query(&expecting(expect));
        self.send(request.json(put)?).await?.json()
    }

    /// Deletes a grant. Agents keep the stacks that it covered, but no longer change them.
    pub async fn delete_grant(&self, grant: &str, expect: Option<u64>) -> Result<()> {
        let request = self.write(Method::DELETE, &["grants", grant]).query(&expecting(expect));
        self.send(request).await.map(|_| ())
    }
}
