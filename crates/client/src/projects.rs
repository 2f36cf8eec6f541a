//! Projects, by name.

use brokkr_api::projects::{Project, PutProject};
use http::Method;

use crate::page::expecting;
use crate::{Client, Result};

impl Client {
    /// Lists the projects that the caller may see.
    pub async fn projects_all(&self) -> Result<Vec<Project>> {
        self.all(&["projects"], &[]).await
    }

    pub async fn project(&self, project: &str) -> Result<Project> {
        self.send(self.read(&["projects", project])).await?.json()
    }

    /// Creates the project if there is none of that name, or changes what is given. `expect` confirms the number
    /// of (stack, agent) pairs that a restriction freezes.
    pub async fn put_project(&self, project: &str, put: &PutProject, expect: Option<u64>) -> Result<Project> {
        let request = self.write(Method::PUT, &["projects", project]).query(&expecting(expect));
        self.send(request.json(put)?).await?.json()
    }

    /// Deletes a project. The broker refuses this if the project ever had a stack, or has valid tokens,
    /// webhooks or grants.
    pub async fn delete_project(&self, project: &str) -> Result<()> {
        self.send(self.write(Method::DELETE, &["projects", project])).await.map(|_| ())
    }
}
