//! The volumes of a Pod as folders: Secrets, ConfigMaps, tokens, empty folders, and projections of several.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, KeyToPath, ObjectFieldSelector, Pod, Secret, ServiceAccount, ServiceAccountTokenProjection,
    Volume, VolumeProjection,
};
use kube::{Api, Client, ResourceExt as _};

/// The data of a Secret or ConfigMap.
pub(super) type Contents = BTreeMap<String, Vec<u8>>;

/// Reads the objects that a Pod refers to.
pub(super) struct Source<'a> {
    pub(super) client: &'a Client,
    pub(super) pod: &'a Pod,
}

impl Source<'_> {
    /// Creates the folder of a volume, below `parent`.
    pub(super) async fn materialise(&self, volume: &Volume, parent: &Path) -> Result<PathBuf> {
        let folder = parent.join(&volume.name);
        fs::create_dir_all(&folder)?;
        if volume.empty_dir.is_some() {
            return Ok(folder);
        }
        if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            let contents = self.secret(name, secret.optional).await?;
            write(&folder, &chosen(contents, secret.items.as_deref())?)?;
        } else if let Some(map) = &volume.config_map {
            let contents = self.config_map(&map.name, map.optional).await?;
            write(&folder, &chosen(contents, map.items.as_deref())?)?;
        } else if let Some(projected) = &volume.projected {
            for source in projected.sources.iter().flatten() {
                write(&folder, &self.projection(source).await?)?;
            }
        } else {
            bail!("the type of the volume {} is not supported", volume.name);
        }
        Ok(folder)
    }

    async fn projection(&self, source: &VolumeProjection) -> Result<Contents> {
        if let Some(token) = &source.service_account_token {
            let path = token.path.clone();
            return Ok(Contents::from([(path, self.token(token).await?.into_bytes())]));
        }
        if let Some(secret) = &source.secret {
            return chosen(self.secret(&secret.name, secret.optional).await?, secret.items.as_deref());
        }
        if let Some(map) = &source.config_map {
            return chosen(self.config_map(&map.name, map.optional).await?, map.items.as_deref());
        }
        let mut contents = Contents::new();
        for item in source.downward_api.iter().flat_map(|api| api.items.iter().flatten()) {
            let field = item.field_ref.as_ref().context("only fields of the Pod are supported")?;
            contents.insert(item.path.clone(), self.field(field)?.into_bytes());
        }
        Ok(contents)
    }

    /// Requests a token that is bound to the Pod, as the kubelet does.
    async fn token(&self, projection: &ServiceAccountTokenProjection) -> Result<String> {
        let account = self.account();
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: projection.audience.iter().cloned().collect(),
                expiration_seconds: projection.expiration_seconds,
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(self.pod.name_any()),
                    uid: self.pod.uid(),
                }),
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace());
        let answer = accounts
            .create_token_request(&account, &Default::default(), &request)
            .await
            .with_context(|| format!("cannot get a token for the ServiceAccount {account}"))?;
        Ok(answer.status.context("the token request was answered without a token")?.token)
    }

    pub(super) async fn secret(&self, name: &str, optional: Option<bool>) -> Result<Contents> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace());
        match api.get_opt(name).await.with_context(|| format!("cannot read the Secret {name}"))? {
            Some(secret) => {
                Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
            }
            None if optional == Some(true) => Ok(Contents::new()),
            None => bail!("there is no Secret {name}"),
        }
    }

    pub(super) async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<Contents> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace());
        match api.get_opt(name).await.with_context(|| format!("cannot read the ConfigMap {name}"))? {
            Some(map) => {
                let texts = map.data.unwrap_or_default().into_iter();
                Ok(texts.map(|(key, text)| (key, text.into_bytes())).collect())
            }
            None if optional == Some(true) => Ok(Contents::new()),
            None => bail!("there is no ConfigMap {name}"),
        }
    }

    /// Returns the field of the Pod that a `fieldRef` names.
    pub(super) fn field(&self, field: &ObjectFieldSelector) -> Result<String> {
        Ok(match field.field_path.as_str() {
            "metadata.name" => self.pod.name_any(),
            "metadata.namespace" => self.namespace(),
            "metadata.uid" => self.pod.uid().unwrap_or_default(),
            "spec.serviceAccountName" => self.account(),
            "spec.nodeName" => {
                self.pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
            }
            // The Pod's ports are on the loopback address.
            "status.podIP" | "status.hostIP" => "127.0.0.1".into(),
            other => bail!("the field {other} is not supported"),
        })
    }

    fn namespace(&self) -> String {
        self.pod.namespace().unwrap_or_default()
    }

    fn account(&self) -> String {
        let named = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        named.unwrap_or_else(|| "default".into())
    }
}

/// Returns all keys under their own names, or the listed ones under the given paths.
fn chosen(mut contents: Contents, items: Option<&[KeyToPath]>) -> Result<Contents> {
    let Some(items) = items else { return Ok(contents) };
    let mut chosen = Contents::new();
    for item in items {
        let value = contents.remove(&item.key).with_context(|| format!("there is no key {}", item.key))?;
        chosen.insert(item.path.clone(), value);
    }
    Ok(chosen)
}

fn write(folder: &Path, contents: &Contents) -> Result<()> {
    for (path, value) in contents {
        let file = folder.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, value).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
