//! The requests: each is valid except for its situation.

use anyhow::{Context as _, Result};
use brokkr_api::agents::HeldStack;
use brokkr_api::ids::Checksum;
use brokkr_api::protocol::{ENVELOPE_MEDIA_TYPE, header, holds_digest};
use brokkr_api::report::Transition;
use brokkr_api::{InstallationId, Position, PositionToken, SequenceId, StackId};
use brokkr_broker::router::Route;
use jiff::Timestamp;
use reqwest::header::AUTHORIZATION;
use reqwest::{Body, Method, Request};
use serde_json::{Value, json};

use super::replica::Replica;
use super::situation::{Expected, Situation, largest_body};
use super::world::{Target, World};
use crate::harness::{Agent, Key, bound, held};

/// More than an agent may report at once, in requests of the largest size.
const FLOOD: usize = 70;
const YEARS: i64 = 10 * 365 * 86_400;

/// One attempt: a route, a situation, and which of several victims.
#[derive(Clone, Copy)]
pub struct Attempt<'a> {
    pub world: &'a World,
    pub route: &'a Route,
    pub situation: Situation,
    pub victim: usize,
    /// The target state with content instead of the envelope.
    pub plain: bool,
}

impl<'a> Attempt<'a> {
    /// Returns the attempts of a route: one for each situation, and for each victim where there are several.
    pub fn all(world: &'a World, route: &'a Route, situation: Situation) -> Vec<Self> {
        let victims = match situation {
            Situation::OtherAgent | Situation::WrongKey => world.victims.len(),
            Situation::OtherProject => world.foreign.len(),
            _ => 1,
        };
        let forms = if route.name.ends_with("/target-state") { &[false, true][..] } else { &[false] };
        let of = |plain: bool| move |victim| Attempt { world, route, situation, victim, plain };
        forms.iter().flat_map(|plain| (0..victims).map(of(*plain))).collect()
    }

    pub fn name(&self) -> String {
        format!("{} × {}", self.route.name, self.situation)
    }

    pub fn expected(&self) -> Expected {
        self.situation.expected(self.route, self.plain)
    }

    /// Returns the agent in whose name the request is sent.
    pub fn sender(&self) -> &'a Agent {
        match self.situation {
            Situation::SupersededSession => &self.world.superseded,
            Situation::Inactive => &self.world.inactive,
            Situation::Revoked => &self.world.revoked,
            Situation::Rejoined => &self.world.rejoined,
            Situation::WrongKey => &self.world.victims[self.victim],
            Situation::Flood => &self.world.flooding,
            Situation::ForgedKeyChange => &self.world.keyed,
            _ => &self.world.attacker,
        }
    }

    fn method(&self) -> Result<Method> {
        Ok(self.route.name.split(' ').next().unwrap_or_default().parse()?)
    }

    /// Returns the stack and version that the request names.
    fn subject(&self) -> (StackId, SequenceId) {
        let world = self.world;
        let of = |target: &Target| (target.id, target.newest());
        match self.situation {
            Situation::NotTargeted => of(&world.other),
            Situation::TargetedBefore => of(&world.before),
            Situation::HeldBefore => (world.left.id, world.left.versions[0]),
            Situation::OtherProject => of(&world.foreign[self.victim]),
            Situation::WrongKey => of(&world.foreign[self.victim.min(world.foreign.len() - 1)]),
            Situation::NotGranted => of(&world.not_granted),
            Situation::DeletedStack => of(&world.deleted),
            Situation::PurgedStack => of(&world.purged),
            Situation::UnknownStack => (StackId::generate(), world.other.newest()),
            Situation::FutureSequence => (world.own.id, SequenceId(i64::MAX)),
            Situation::PastSequence => (world.own.id, world.own.versions[0]),
            _ => of(&world.own),
        }
    }

    fn path(&self) -> Result<String> {
        let named = if self.situation == Situation::OtherAgent {
            &self.world.victims[self.victim]
        } else {
            self.sender()
        };
        let (_, path) = self.route.name.split_once(' ').context("METHOD /path")?;
        let sequence = self.subject().1.to_string();
        let path = path.replace("{agent}", &named.id.to_string()).replace("{sequence_id}", &sequence);
        let path = path.replace("{checksum}", &Checksum::of(b"rules").to_string());
        anyhow::ensure!(!path.contains('{'), "fill in the parameters of {path}");
        Ok(path)
    }

    fn body(&self) -> Result<Value> {
        let (agent, (stack, sequence)) = (self.sender(), self.subject());
        let second = match self.situation {
            Situation::FutureTime => 4_000_000_000,
            Situation::PastTime => 1_000,
            _ => 1_770_000_000,
        };
        Ok(match self.route.name.rsplit('/').next().context("a path")? {
            "session" => json!({ "count": 1, "instance": agent.session.instance }),
            "holds" => {
                let claim = HeldStack { sequence_id: sequence, ..held(stack, "claimed", 1) };
                json!({ "stacks": [stack], "held": [claim] })
            }
            "reports" if self.situation == Situation::Flood => json!({ "reports": [] }),
            "reports" => {
                let mut report = agent.report(stack, sequence, Transition::Failed, second);
                if self.situation == Situation::ForgedReport {
                    report.id = report.derived_id(self.world.victims[0].id);
                }
                json!({ "reports": [report] })
            }
            "keys" => {
                let mut change = agent.signer().key_change(&Key::generate()?)?;
                if self.situation == Situation::ForgedKeyChange {
                    change.old_signature.clone_from(&change.signature);
                }
                json!(change)
            }
            "upgrade" => {
                let at = Timestamp::from_second(second)?;
                json!({ "id": sequence, "step": "reconciled", "version": "1.0.0", "at": at })
            }
            other => anyhow::bail!("write a body for {other}"),
        })
    }

    /// Returns the position that the request claims to have seen.
    fn position(&self) -> Option<PositionToken> {
        let issued = self.world.issued;
        let position = Position { horizon: issued.position.horizon + 1_000_000_000, ..issued.position };
        match self.situation {
            Situation::WrongMac => Some(PositionToken { position, ..issued }),
            Situation::Unproven => Some(position.into()),
            _ => None,
        }
    }

    /// Returns the requests, to be sent one after the other.
    pub fn requests(&self, replica: &Replica) -> Result<Vec<Request>> {
        let (agent, method) = (self.sender(), self.method()?);
        let client = reqwest::Client::builder().no_proxy().no_gzip().build()?;
        let url = format!("http://{}{}", replica.address, self.path()?);
        let mut request =
            client.request(method.clone(), url).header(header::SESSION, agent.session.to_string());
        if let Some(position) = self.position() {
            request = request.header(header::POSITION, position.to_string());
        }
        if self.route.name.ends_with("/target-state") && !self.plain {
            request = request.header("accept", ENVELOPE_MEDIA_TYPE).header(header::PROTOCOL, "1");
            request = request.header(header::HOLDS, holds_digest(agent.holds.iter().copied()).to_string());
        }
        if method != Method::GET {
            request = request.header("content-type", "application/json").body(self.encoded()?);
        }
        let mut request = request.build()?;
        let credential = self.credential(&request, replica)?;
        request.headers_mut().insert(AUTHORIZATION, format!("Bearer {credential}").parse()?);
        let count = match self.situation {
            Situation::Flood => FLOOD,
            Situation::Replayed => 2,
            _ => 1,
        };
        if self.situation == Situation::OversizedStream {
            let bytes = request.body().and_then(Body::as_bytes).unwrap_or_default().to_vec();
            let chunks = bytes.chunks(16 << 10).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec()));
            let chunks: Vec<_> = chunks.collect();
            *request.body_mut() = Some(Body::wrap_stream(futures::stream::iter(chunks)));
            return Ok(vec![request]);
        }
        (0..count).map(|_| request.try_clone().context("a body in memory")).collect()
    }

    fn encoded(&self) -> Result<String> {
        let (body, largest) = (self.body()?.to_string(), largest_body(self.route.name));
        let size = match self.situation {
            Situation::Oversized | Situation::OversizedStream => largest + 1,
            Situation::Flood => largest,
            _ => body.len(),
        };
        Ok(format!("{body}{}", " ".repeat(size - body.len())))
    }

    /// Returns the assertion for the request, wrong as in the situation.
    fn credential(&self, request: &Request, replica: &Replica) -> Result<String> {
        let (signer, reads) = (self.sender().signer(), request.method() == Method::GET);
        let mut bound = Some(bound(request)).filter(|_| !reads);
        match (self.situation, &mut bound) {
            // The broker has accepted this one before.
            (Situation::Revoked | Situation::Rejoined, None) => {
                return self.world.accepted_before(self.sender(), replica);
            }
            (Situation::OtherRequest, None) => bound = Some(crate::harness::bound(request)),
            (Situation::OtherRequest, Some(bound)) => bound.path.push_str("?other"),
            (Situation::OtherBody, Some(bound)) => bound.body = Checksum::of(b"another body"),
            _ => {}
        }
        let mut claims = signer.claims(bound);
        let shift = |claims: &mut Value, name: &str, by: i64| {
            claims[name] = json!(claims[name].as_i64().unwrap_or_default() + by);
        };
        match self.situation {
            Situation::OtherInstallation => claims["aud"] = json!(InstallationId::generate()),
            Situation::ExpiredAssertion => {
                shift(&mut claims, "iat", -1000);
                shift(&mut claims, "exp", -1000);
            }
            Situation::LongLivedAssertion => shift(&mut claims, "exp", YEARS),
            Situation::WrongKey => return self.world.attacker.key.sign(&claims),
            _ => {}
        }
        signer.key.sign(&claims)
    }
}
