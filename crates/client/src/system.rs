//! The installation, and stacks that need settling after a restore.

use brokkr_api::system::{Holder, LiftHold, RaisedEpoch, Settled, Settlement, System, UnsettledStack};
use http::Method;

use crate::{Client, Result};

impl Client {
    pub async fn system(&self) -> Result<System> {
        self.send(self.read(&["system"])).await?.json()
    }

    /// Lifts the hold by raising the epoch.
    pub async fn lift_hold(&self, reason: &str) -> Result<RaisedEpoch> {
        let lift = LiftHold { reason: reason.to_owned() };
        self.send(self.write(Method::POST, &["system", "hold", "lift"]).json(&lift)?).await?.json()
    }

    /// Lists stacks on which agents are ahead of the broker's database.
    pub async fn system_ahead_all(&self) -> Result<Vec<UnsettledStack>> {
        self.all(&["system", "ahead"], &[]).await
    }

    /// Lists stacks that agents hold and the broker's database does not know.
    pub async fn system_unknown_all(&self) -> Result<Vec<UnsettledStack>> {
        self.all(&["system", "unknown"], &[]).await
    }

    /// Lists stacks that agents say they have although these do not target them.
    pub async fn system_unconfirmed_all(&self) -> Result<Vec<UnsettledStack>> {
        self.all(&["system", "unconfirmed"], &[]).await
    }

    /// Lists every agent that holds an unsettled stack, given by id or by name in the caller's project.
    pub async fn system_holders_all(&self, stack: &str) -> Result<Vec<Holder>> {
        self.all(&["system", "stacks", stack, "holders"], &[]).await
    }

    /// Settles a stack, given by id or by name in the caller's project.
    pub async fn settle(&self, stack: &str, settlement: &Settlement) -> Result<Settled> {
        let path = ["system", "stacks", stack, "settlement"];
        self.send(self.write(Method::POST, &path).json(settlement)?).await?.json()
    }
}
