//! Projects, by name.

use brokkr_api::projects::{Project, PutProject};
use http::Method;

use crate::{Client, Result};

impl Client {
    /// The projects that the caller may see.
    pub async fn projects_all(&self) -> Result<Vec<Project>> {
        self.all(&["projects"], &[]).await
    }

    pub async fn project(&self, project: &str) -> Result<Project> {
        self.send(self.read(&["projects", project])).await?.json()
    }

    /// Makes the project if there is none of that name; changes the quotas that are given.
    pub async fn put_project(&self, project: &str, put: &PutProject) -> Result<Project> {
        self.send(self.write(Method::PUT, &["projects", project]).json(put)?).await?.json()
    }

    /// Refused as long as the project has something in it.
    pub async fn delete_project(&self, project: &str) -> Result<()> {
        self.send(self.write(Method::DELETE, &["projects", project])).await.map(|_| ())
    }
}
