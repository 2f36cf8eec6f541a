//! Projects, by name.

use brokkr_api::page::Page;
use brokkr_api::projects::{Project, PutProject};
use http::Method;

use crate::builder::Client;
use crate::error::ClientError;
use crate::page::PageQuery;

impl Client {
    /// The projects that the caller may see.
    pub async fn projects(&self, page: &PageQuery) -> Result<Page<Project>, ClientError> {
        self.send(self.read(&["projects"]).query(&page.pairs())).await?.json()
    }

    pub async fn projects_all(&self) -> Result<Vec<Project>, ClientError> {
        self.read_on(|page| async move { self.projects(&page).await }).await
    }

    pub async fn project(&self, project: &str) -> Result<Project, ClientError> {
        self.send(self.read(&["projects", project])).await?.json()
    }

    /// Makes the project if there is none of that name; changes the quotas that are given.
    pub async fn put_project(&self, project: &str, put: &PutProject) -> Result<Project, ClientError> {
        self.send(self.write(Method::PUT, &["projects", project]).json(put)?).await?.json()
    }

    /// Refused as long as the project has something in it.
    pub async fn delete_project(&self, project: &str) -> Result<(), ClientError> {
        self.send(self.write(Method::DELETE, &["projects", project])).await.map(|_| ())
    }
}
