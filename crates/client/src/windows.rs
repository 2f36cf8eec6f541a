//! Maintenance windows and freezes.

use brokkr_api::windows::{PutWindow, Window};
use http::Method;

use crate::{Client, Result};

impl Client {
    pub async fn windows_all(&self) -> Result<Vec<Window>> {
        self.all(&["windows"], &[]).await
    }

    pub async fn window(&self, window: &str) -> Result<Window> {
        self.send(self.read(&["windows", window])).await?.json()
    }

    /// Creates or replaces a window.
    pub async fn put_window(&self, window: &str, put: &PutWindow) -> Result<Window> {
        let request = self.write(Method::PUT, &["windows", window]);
        self.send(request.json(put)?).await?.json()
    }

    pub async fn delete_window(&self, window: &str) -> Result<()> {
        self.send(self.write(Method::DELETE, &["windows", window])).await.map(|_| ())
    }
}
