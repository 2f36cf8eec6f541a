//! `brokkr-agent forget-position`: for the owner of the cluster, who decides which broker is the right one.

use anyhow::Context as _;

use crate::args::ForgetPositionArguments;
use crate::broker_link::memory::Memory;
use crate::run::kube_client;

pub async fn forget_position(arguments: ForgetPositionArguments) -> anyhow::Result<()> {
    let client = kube_client(arguments.kubeconfig.as_deref()).await?;
    let forgotten = Memory::new(&client, &arguments.namespace).forget_position().await;
    match forgotten.context("forget the position")? {
        Some(position) => println!("forgot position {position}; next: restart the agent"),
        None => println!("no position is stored"),
    }
    Ok(())
}
