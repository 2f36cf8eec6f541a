//! API tokens, join tokens, and the caller's identity.

use brokkr_api::TokenId;
use brokkr_api::tokens::{
    ApiToken, CreateApiToken, CreateJoinToken, JoinToken, JoinTokenInfo, NewApiToken, RotateApiToken,
    RotatedApiToken, WhoAmI,
};
use http::Method;

use crate::{Client, Result};

impl Client {
    pub async fn create_join_token(&self, wanted: &CreateJoinToken) -> Result<JoinToken> {
        self.send(self.write(Method::POST, &["join-tokens"]).json(wanted)?).await?.json()
    }

    /// Lists the tokens, oldest first, without secrets.
    pub async fn join_tokens_all(&self) -> Result<Vec<JoinTokenInfo>> {
        self.all(&["join-tokens"], &[]).await
    }

    /// Revokes a join token. An agent that has used it keeps its key.
    pub async fn revoke_join_token(&self, token: TokenId) -> Result<()> {
        self.send(self.write(Method::DELETE, &["join-tokens", &token.to_string()])).await.map(|_| ())
    }

    /// Creates an API token. Returns its secret, which is not shown again.
    pub async fn create_api_token(&self, wanted: &CreateApiToken) -> Result<NewApiToken> {
        self.send(self.write(Method::POST, &["api-tokens"]).json(wanted)?).await?.json()
    }

    /// Lists the tokens, oldest first, without secrets.
    pub async fn api_tokens_all(&self) -> Result<Vec<ApiToken>> {
        self.all(&["api-tokens"], &[]).await
    }

    pub async fn api_token(&self, token: TokenId) -> Result<ApiToken> {
        self.send(self.read(&["api-tokens", &token.to_string()])).await?.json()
    }

    pub async fn revoke_api_token(&self, token: TokenId) -> Result<()> {
        self.send(self.write(Method::DELETE, &["api-tokens", &token.to_string()])).await.map(|_| ())
    }

    /// Returns the new secret, which is not shown again.
    pub async fn rotate_api_token(&self, token: TokenId, wanted: &RotateApiToken) -> Result<RotatedApiToken> {
        let path = ["api-tokens", &token.to_string(), "rotate"];
        self.send(self.write(Method::POST, &path).json(wanted)?).await?.json()
    }

    pub async fn whoami(&self) -> Result<WhoAmI> {
        self.send(self.read(&["whoami"])).await?.json()
    }
}
