//! Join tokens, and who one is.

use brokkr_api::tokens::{CreateJoinToken, JoinToken, WhoAmI};
use http::Method;

use crate::builder::Client;
use crate::error::ClientError;

impl Client {
    pub async fn create_join_token(&self, wanted: &CreateJoinToken) -> Result<JoinToken, ClientError> {
        self.send(self.write(Method::POST, &["join-tokens"]).json(wanted)?).await?.json()
    }

    pub async fn whoami(&self) -> Result<WhoAmI, ClientError> {
        self.send(self.read(&["whoami"])).await?.json()
    }
}
