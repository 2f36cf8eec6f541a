//! API tokens, join tokens, and the caller's identity.

use brokkr_api::TokenId;
use brokkr_api::page::Page;
use brokkr_api::tokens::{
    ApiToken, CreateApiToken, CreateJoinToken, JoinToken, JoinTokenInfo, NewApiToken, RotateApiToken,
    RotatedApiToken, WhoAmI,
};
use http::Method;

use crate::builder::Client;
use crate::error::ClientError;
use crate::page::PageQuery;

impl Client {
    pub async fn create_join_token(&self, wanted: &CreateJoinToken) -> Result<JoinToken, ClientError> {
        self.send(self.write(Method::POST, &["join-tokens"]).json(wanted)?).await?.json()
    }

    /// Lists them, oldest first, without secrets.
    pub async fn join_tokens(&self, page: &PageQuery) -> Result<Page<JoinTokenInfo>, ClientError> {
        self.send(self.read(&["join-tokens"]).query(&page.pairs())).await?.json()
    }

    pub async fn join_tokens_all(&self) -> Result<Vec<JoinTokenInfo>, ClientError> {
        self.read_on(|page| async move { self.join_tokens(&page).await }).await
    }

    /// Revokes a join token. An agent that has used it keeps its key.
    pub async fn revoke_join_token(&self, token: TokenId) -> Result<(), ClientError> {
        self.send(self.write(Method::DELETE, &["join-tokens", &token.to_string()])).await.map(|_| ())
    }

    /// Returns the secret, which is not shown again.
    pub async fn create_api_token(&self, wanted: &CreateApiToken) -> Result<NewApiToken, ClientError> {
        self.send(self.write(Method::POST, &["api-tokens"]).json(wanted)?).await?.json()
    }

    /// Lists them, oldest first, without secrets.
    pub async fn api_tokens(&self, page: &PageQuery) -> Result<Page<ApiToken>, ClientError> {
        self.send(self.read(&["api-tokens"]).query(&page.pairs())).await?.json()
    }

    pub async fn api_tokens_all(&self) -> Result<Vec<ApiToken>, ClientError> {
        self.read_on(|page| async move { self.api_tokens(&page).await }).await
    }

    pub async fn api_token(&self, token: TokenId) -> Result<ApiToken, ClientError> {
        self.send(self.read(&["api-tokens", &token.to_string()])).await?.json()
    }

    pub async fn revoke_api_token(&self, token: TokenId) -> Result<(), ClientError> {
        self.send(self.write(Method::DELETE, &["api-tokens", &token.to_string()])).await.map(|_| ())
    }

    /// Returns the new secret, which is not shown again.
    pub async fn rotate_api_token(
        &self,
        token: TokenId,
        wanted: &RotateApiToken,
    ) -> Result<RotatedApiToken, ClientError> {
        let path = ["api-tokens", &token.to_string(), "rotate"];
        self.send(self.write(Method::POST, &path).json(wanted)?).await?.json()
    }

    pub async fn whoami(&self) -> Result<WhoAmI, ClientError> {
        self.send(self.read(&["whoami"])).await?.json()
    }
}
