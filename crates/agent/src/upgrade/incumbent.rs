//! The version that serves: it begins an upgrade that the broker offers, watches it, and restores its own image if it fails.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use brokkr_api::upgrades::{UpgradeOffer, UpgradeReason, UpgradeReport, UpgradeStep};
use brokkr_install::installed::Installed;
use jiff::SignedDuration;

use super::decide::{NextStep, is_superseded};
use super::home::{Found, Home};
use super::offer::{Answer, answer};
use super::reporter::{Reporter, report, shortened};
use super::role::{Attempt, End};
use super::watch::{TICK, Watch};
use crate::backoff::Backoff;
use crate::broker_link::memory::Memory;
use crate::broker_link::upgrade_signals::UpgradeSignals;
use crate::clock;
use crate::own_objects::RequestError;
use crate::version::VERSION;

/// The pauses after failures.
const FAILED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// The pause before a report is sent again.
const REPORT_AGAIN: Duration = Duration::from_secs(15);
/// After this time, an offer that was not begun is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// An upgrade that was undone is begun again only after this time, also if the broker offers it.
const UNDONE_FOR: SignedDuration = SignedDuration::from_hours(1);

pub struct Incumbent {
    home: Home,
    reporter: Reporter,
    memory: Memory,
    /// The session count of this process.
    session: i64,
    signals: UpgradeSignals,
    watch: Watch,
    /// How often it looks whether the owner of the cluster has allowed upgrades: seldom, because an idle agent sends no requests.
    idle: Duration,
    /// The broker offers something that was not looked at yet.
    is_offered: bool,
    /// Offers are not looked at before this time, because the last one was not begun.
    quiet_until: Option<Instant>,
    /// Whether this process has looked which upgrade has brought it.
    knows_its_upgrade: bool,
    /// A report that the broker has not received yet. Later steps are more important, so only the last one is kept.
    unsent: Option<UpgradeReport>,
}

enum Turn {
    Wait(Duration),
    /// The former image is restored, and the new version had taken over.
    StartAgain,
}

impl Incumbent {
    #[must_use]
    pub fn new(
        home: Home,
        reporter: Reporter,
        memory: Memory,
        session: i64,
        signals: UpgradeSignals,
        timeout: Duration,
        idle: Duration,
    ) -> Self {
        let watch = Watch::new(home.clone(), timeout);
        Self {
            home,
            reporter,
            memory,
            session,
            signals,
            watch,
            idle,
            is_offered: false,
            quiet_until: None,
            knows_its_upgrade: false,
            unsent: None,
        }
    }

    /// Runs until the process has to start again.
    pub async fn run(mut self) {
        let mut failures = 0;
        loop {
            let wait = match self.turn().await {
                Ok(Turn::Wait(wait)) => {
                    failures = 0;
                    wait
                }
                Ok(Turn::StartAgain) => {
                    tracing::warn!("the new version had taken over and is undone; starting again");
                    return;
                }
                Err(error) => {
                    failures += 1;
                    let pause = FAILED.delay(failures);
                    tracing::warn!("failed to attend to upgrades: {error:#}; retrying in {pause:?}");
                    pause
                }
            };
            let wait = if self.unsent.is_some() { wait.min(REPORT_AGAIN) } else { wait };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = offered(&self.signals, self.quiet_until) => self.is_offered = true,
            }
        }
    }

    /// Looks at the cluster, and takes the next step. Nothing is remembered from the last turn that decides about the image.
    async fn turn(&mut self) -> anyhow::Result<Turn> {
        let installed = self.home.installed().await.context("read the ConfigMap of the admission policy")?;
        let repository = Installed(&installed).repository();
        let found = match repository {
            Some(_) => self.home.find().await.context("read the Deployment of the agent")?,
            None => None,
        };
        self.reporter.broker.announce_upgrades(found.is_some());
        let is_under_way = found.as_ref().is_some_and(|found| found.deployed.is_under_way());
        self.signals.set_under_way(is_under_way);
        self.send_unsent().await;
        let Some(found) = found else {
            if std::mem::take(&mut self.is_offered)
                && let Some(offer) = self.fetch_offer().await?
            {
                self.refuse(&offer, UpgradeReason::NotAllowed { allowed: None }).await;
            }
            return Ok(Turn::Wait(self.idle));
        };
        if !std::mem::replace(&mut self.knows_its_upgrade, true)
            && let Some(attempt) = found.stored.completed_by(VERSION, &found.deployed)
        {
            self.send(report(attempt.id, UpgradeStep::Reconciled, None)).await;
        }
        match self.watch.next(&found) {
            NextStep::Idle => {
                if std::mem::take(&mut self.is_offered)
                    && let Some(offer) = self.fetch_offer().await?
                {
                    return self.consider(&found, &offer, repository).await.map(Turn::Wait);
                }
                Ok(Turn::Wait(self.idle))
            }
            NextStep::ReportEnd(end) => self.report_end(&found, end).await.map(Turn::Wait),
            NextStep::Watch => Ok(Turn::Wait(TICK)),
            NextStep::Restore(cause) => {
                self.watch.restore(&found, cause).await.context("restore the former image")?;
                let newest = self.memory.newest_session().await.context("read the session count")?;
                if is_superseded(self.session, newest) {
                    return Ok(Turn::StartAgain);
                }
                Ok(Turn::Wait(Duration::ZERO))
            }
        }
    }

    async fn fetch_offer(&self) -> anyhow::Result<Option<UpgradeOffer>> {
        self.reporter.broker.upgrade_offer(self.reporter.agent).await.context("fetch the offered upgrade")
    }

    /// Begins an upgrade, or says why not. Returns how long to wait before the next turn.
    async fn consider(
        &mut self,
        found: &Found,
        offer: &UpgradeOffer,
        repository: Option<&str>,
    ) -> anyhow::Result<Duration> {
        if was_undone(found, offer) {
            tracing::debug!(upgrade.id = %offer.id, "the offered upgrade was undone recently; not beginning it again yet");
            self.quiet_until = Some(Instant::now() + LOOK_AGAIN);
            return Ok(self.idle);
        }
        let deployed = found.deployed.agent_version.as_deref();
        match answer(offer, VERSION, repository, deployed) {
            Answer::IsThere => {
                self.send(report(offer.id, UpgradeStep::Reconciled, None)).await;
                self.quiet_until = Some(Instant::now() + LOOK_AGAIN);
                Ok(self.idle)
            }
            Answer::Refuse(reason) => {
                self.refuse(offer, reason).await;
                Ok(self.idle)
            }
            Answer::Begin if !found.deployment.keeps_old_pod() => {
                let message = "the Deployment must have the strategy RollingUpdate with maxUnavailable 0";
                self.refuse(offer, UpgradeReason::NotStarted { message: message.to_owned() }).await;
                Ok(self.idle)
            }
            Answer::Begin => self.begin(found, offer).await,
        }
    }

    async fn begin(&mut self, found: &Found, offer: &UpgradeOffer) -> anyhow::Result<Duration> {
        // Before the Deployment, so that both processes know which upgrade it is.
        let attempt = Attempt { id: offer.id, image: offer.image.clone(), from: VERSION.to_owned() };
        self.home.store_attempt(&attempt).await.context("store the upgrade")?;
        match self.home.change(&found.deployment, &found.deployed.begun(&offer.image, &offer.version)).await {
            Ok(()) => {
                tracing::info!(upgrade.id = %offer.id, image = offer.image, version = offer.version, "began an upgrade of the agent");
                self.signals.set_under_way(true);
                self.send(report(offer.id, UpgradeStep::Begun, None)).await;
                Ok(TICK)
            }
            Err(error) => match refusal(&error) {
                Some(message) => {
                    self.refuse(offer, UpgradeReason::NotStarted { message: shortened(message) }).await;
                    Ok(self.idle)
                }
                None => {
                    self.is_offered = true;
                    Err(error).context("change the image of the Deployment")
                }
            },
        }
    }

    async fn refuse(&mut self, offer: &UpgradeOffer, reason: UpgradeReason) {
        tracing::warn!(upgrade.id = %offer.id, image = offer.image, "refused an upgrade of the agent: {reason}");
        self.send(report(offer.id, UpgradeStep::Refused, Some(reason))).await;
        self.quiet_until = Some(Instant::now() + LOOK_AGAIN);
    }

    /// Reports that the former image was restored, and notes that the broker knows it.
    async fn report_end(&mut self, found: &Found, end: End) -> anyhow::Result<Duration> {
        let attempt = found.stored.attempt.as_ref().filter(|attempt| attempt.image == end.image);
        if let Some(attempt) = attempt {
            let reason = Some(end.reason.clone());
            let restored = UpgradeReport { at: end.at, ..report(attempt.id, UpgradeStep::Restored, reason) };
            // An earlier step must not follow it.
            self.unsent = None;
            self.reporter.send(&restored).await.context("report that the former image was restored")?;
        }
        let end = End { is_reported: true, ..end };
        self.home.store_end(&end).await.context("store that the end of the upgrade was reported")?;
        Ok(Duration::ZERO)
    }

    async fn send(&mut self, report: UpgradeReport) {
        self.unsent = Some(report);
        self.send_unsent().await;
    }

    async fn send_unsent(&mut self) {
        let Some(report) = &self.unsent else { return };
        match self.reporter.send(report).await {
            Ok(()) => self.unsent = None,
            Err(error) => {
                tracing::warn!(%error, step = %report.step, "failed to report an upgrade; retrying");
            }
        }
    }
}

/// Waits until the broker offers something, but not before this time.
async fn offered(signals: &UpgradeSignals, quiet_until: Option<Instant>) {
    loop {
        signals.wanted().await;
        if quiet_until.is_none_or(|until| until <= Instant::now()) {
            return;
        }
    }
}

/// Returns whether this upgrade was undone so recently that it would end in the same way.
fn was_undone(found: &Found, offer: &UpgradeOffer) -> bool {
    let is_it = found.stored.attempt.as_ref().is_some_and(|attempt| attempt.id == offer.id);
    let end = found.stored.end_beside(&found.deployed).filter(|end| is_it && end.image == offer.image);
    end.is_some_and(|end| {
        let since = clock::now().duration_since(end.at);
        (SignedDuration::ZERO..UNDONE_FOR).contains(&since)
    })
}

/// Returns the message of an admission policy or webhook that refuses the change.
fn refusal(error: &RequestError) -> Option<String> {
    match error {
        RequestError::Api(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Some(status.message.clone())
        }
        _ => None,
    }
}
