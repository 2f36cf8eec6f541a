//! `brokkr-broker epoch …`: works on the database, whether or not replicas run.

use anyhow::{Context as _, Result};
use secrecy::ExposeSecret as _;
use sqlx::{Connection as _, PgConnection};

use crate::args::{DatabaseArgs, EpochCommand, HoldArgs, RaiseArgs};
use crate::domain::audit::AuditRecord;
use crate::domain::hold::{Raised, is_believed, raise};
use crate::store::audit::audit_insert;
use crate::store::connect_options;
use crate::store::installation::{
    BeforeRaise, installation_before_raise_on_conn, installation_hold_by_hand_on_conn,
    installation_raise_on_conn,
};

/// Agents whose claim is not believed and that are named, at most.
const NAMED: usize = 10;

pub async fn run(command: EpochCommand) -> Result<()> {
    match command {
        EpochCommand::Hold(args) => hold(args).await,
        EpochCommand::Raise(args) => raise_epoch(args).await,
    }
}

async fn connect(args: &DatabaseArgs) -> Result<PgConnection> {
    let options = connect_options(args.database_url.expose_secret())?;
    PgConnection::connect_with(&options).await.context("cannot connect to the database")
}

async fn hold(args: HoldArgs) -> Result<()> {
    let mut connection = connect(&args.database).await?;
    let mut transaction = connection.begin().await.context("cannot begin a transaction")?;
    let changed = installation_hold_by_hand_on_conn(&mut transaction, &args.because)
        .await
        .context("is the schema migrated? run `brokkr-broker migrate` first")?;
    if changed {
        audit_insert(&mut *transaction, &[AuditRecord::by_operator("", "epoch hold")]).await?;
    }
    transaction.commit().await.context("cannot put the installation on hold")?;
    println!("{}", if changed { "on hold" } else { "was on hold already" });
    Ok(())
}

async fn raise_epoch(args: RaiseArgs) -> Result<()> {
    let mut connection = connect(&args.database).await?;
    let mut transaction = connection.begin().await.context("cannot begin a transaction")?;
    let before = installation_before_raise_on_conn(&mut transaction)
        .await
        .context("is the schema migrated? run `brokkr-broker migrate` first")?;
    let raised = raise(before.remembered, before.now, before.claims.iter().map(|(_, sequence)| *sequence));
    if !args.dry_run {
        installation_raise_on_conn(&mut transaction, &before, &raised, &args.by).await?;
        audit_insert(&mut *transaction, &[AuditRecord::by_operator(&args.by, "epoch raise")]).await?;
        transaction.commit().await.context("cannot raise the epoch")?;
    }
    print!("{}", told(&before, &raised, args.dry_run));
    Ok(())
}

fn told(before: &BeforeRaise, raised: &Raised, dry_run: bool) -> String {
    let mut lines = vec![match &before.hold {
        Some(hold) => format!("on hold since {:.0}, because {}", hold.since, hold.because),
        None => "not on hold".to_owned(),
    }];
    let here = before.remembered.sequence;
    let unbelieved: Vec<&(String, i64)> =
        before.claims.iter().filter(|(_, claim)| !is_believed(here, *claim)).collect();
    for (agent, claim) in unbelieved.iter().take(NAMED) {
        lines.push(format!("not believed: the agent {agent} claims the sequence id {claim}"));
    }
    let ahead = before.claims.len() - unbelieved.len();
    lines.push(format!("agents that know of sequence ids which the database lost: {ahead}"));
    let verb = if dry_run { "would be raised" } else { "raised" };
    lines.push(format!("epoch {verb} from {} to {}", before.remembered.epoch, raised.epoch));
    lines.push(format!(
        "the highest known sequence id is {}; the next one {} {}",
        raised.highest,
        if dry_run { "would be" } else { "is" },
        raised.sequence + 1
    ));
    lines.push(if dry_run {
        "nothing was changed; run it again without --dry-run".to_owned()
    } else {
        "next: brokkr admin ahead; brokkr admin unknown".to_owned()
    });
    lines.push(String::new());
    lines.join("\n")
}
