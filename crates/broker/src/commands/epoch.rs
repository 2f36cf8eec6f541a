//! `brokkr-broker epoch …`: works on the database directly, with or without running replicas.

use anyhow::{Context as _, Result};
use secrecy::ExposeSecret as _;
use sqlx::{Connection as _, PgConnection};

use crate::args::{DatabaseArgs, EpochCommand, HoldArgs, RaiseArgs};
use crate::domain::audit::AuditRecord;
use crate::domain::hold::{Raised, is_plausible, raise};
use crate::store::audit::audit_insert;
use crate::store::connect_options;
use crate::store::installation::{
    BeforeRaise, installation_before_raise_on_conn, installation_hold_by_hand_on_conn,
    installation_raise_on_conn,
};

/// How many agents with implausible claims are listed at most.
const MAX_LISTED: usize = 10;

pub async fn run(command: EpochCommand) -> Result<()> {
    match command {
        EpochCommand::Hold(args) => hold(args).await,
        EpochCommand::Raise(args) => raise_epoch(args).await,
    }
}

async fn connect(args: &DatabaseArgs) -> Result<PgConnection> {
    let options = connect_options(args.database_url.expose_secret())?;
    PgConnection::connect_with(&options).await.context("failed to connect to the database")
}

async fn hold(args: HoldArgs) -> Result<()> {
    let mut connection = connect(&args.database).await?;
    let mut transaction = connection.begin().await.context("failed to begin a transaction")?;
    let changed = installation_hold_by_hand_on_conn(&mut transaction, &args.because)
        .await
        .context("failed to read the schema; run `brokkr-broker migrate` first")?;
    if changed {
        audit_insert(&mut *transaction, &[AuditRecord::by_operator("", "epoch hold")]).await?;
    }
    transaction.commit().await.context("failed to put the installation on hold")?;
    println!("{}", if changed { "on hold" } else { "already on hold" });
    Ok(())
}

async fn raise_epoch(args: RaiseArgs) -> Result<()> {
    let mut connection = connect(&args.database).await?;
    let mut transaction = connection.begin().await.context("failed to begin a transaction")?;
    let before = installation_before_raise_on_conn(&mut transaction)
        .await
        .context("failed to read the schema; run `brokkr-broker migrate` first")?;
    let raised = raise(before.database, before.now, before.claims.iter().map(|(_, sequence)| *sequence));
    if !args.dry_run {
        installation_raise_on_conn(&mut transaction, &before, &raised, &args.by, None).await?;
        audit_insert(&mut *transaction, &[AuditRecord::by_operator(&args.by, "epoch raise")]).await?;
        transaction.commit().await.context("failed to raise the epoch")?;
    }
    print!("{}", summary(&before, &raised, args.dry_run));
    Ok(())
}

fn summary(before: &BeforeRaise, raised: &Raised, dry_run: bool) -> String {
    let mut lines = vec![match &before.hold {
        Some(hold) => format!("on hold since {:.0}, because {}", hold.since, hold.because),
        None => "not on hold".to_owned(),
    }];
    let here = before.database.sequence;
    let implausible: Vec<&(String, i64)> =
        before.claims.iter().filter(|(_, claim)| !is_plausible(here, *claim)).collect();
    for (agent, claim) in implausible.iter().take(MAX_LISTED) {
        lines.push(format!("ignored: agent {agent} claims the implausible sequence id {claim}"));
    }
    let ahead = before.claims.len() - implausible.len();
    lines.push(format!("agents with sequence ids that the database lost: {ahead}"));
    let verb = if dry_run { "would be raised" } else { "raised" };
    lines.push(format!("epoch {verb} from {} to {}", before.database.epoch, raised.epoch));
    lines.push(format!(
        "the highest known sequence id is {}; the next one {} {}",
        raised.highest,
        if dry_run { "would be" } else { "is" },
        raised.sequence + 1
    ));
    lines.push(if dry_run {
        "nothing was changed; run again without --dry-run".to_owned()
    } else {
        "next: brokkr admin ahead; brokkr admin unknown".to_owned()
    });
    lines.push(String::new());
    lines.join("\n")
}
