//! A test harness: a database, a replica, and callers with every kind of credential.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brokkr_api::agents::{
    HeldStack, OpenedSession, RegisterAgent, RegisteredAgent, RotateKey, SessionVerdict,
};
use brokkr_api::assertion::{AssertionClaims, BoundRequest};
use brokkr_api::ids::Checksum;
use brokkr_api::key_proof::{PublicKey, key_change_message, registration_message};
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::objects::DeploymentObject;
use brokkr_api::protocol::{Capabilities, Capability, ENVELOPE_MEDIA_TYPE, Session, header, holds_digest};
use brokkr_api::reason::{Message, Reason};
use brokkr_api::report::{Report, Transition};
use brokkr_api::stacks::Stack;
use brokkr_api::tokens::{JoinToken, Role};
use brokkr_api::{
    AgentId, ErrorCode, InstallationId, InstanceId, Position, PositionToken, Problem, SequenceId, StackId,
    TokenId,
};
use brokkr_broker::access::secret::{Secret, SecretKind};
use brokkr_broker::args::webhooks::WebhookArgs;
use brokkr_broker::args::{RetentionArgs, ServeArgs};
use brokkr_broker::serve::Server;
use brokkr_broker::state::Broker;
use brokkr_broker::store::api_tokens::{NewApiToken, api_token_insert_on_conn};
use brokkr_broker::store::presence::presence_store;
use brokkr_broker::store::privileges::ServingRole;
use brokkr_broker::store::schema::schema_migrate_with;
use brokkr_testkit::broker::policy_set;
use brokkr_testkit::{Attempt, Database, Postgres, eventually};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::header::AUTHORIZATION;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

/// The role that the replicas of a harness connect with.
pub const SERVING: &str = "brokkr_serving";
pub const YAML: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: greeting\n  namespace: default\n";

pub const INDEX_DEADLINE: Duration = Duration::from_secs(30);

/// A replica with its own database, which is deleted with the harness.
pub struct Harness {
    pub server: Server,
    pub admin: Caller,
    pub database: Database,
    writes: Arc<Writes>,
    pub postgres: Arc<Postgres>,
}

impl Harness {
    pub async fn open() -> Result<Self> {
        Self::open_on(Postgres::shared().await?).await
    }

    /// Uses a separate PostgreSQL, for tests that kill it.
    pub async fn open_on(postgres: Arc<Postgres>) -> Result<Self> {
        Self::open_with(postgres, WebhookArgs::default()).await
    }

    /// Uses these settings of webhooks. The replica connects with a role that does not own the tables, so that every test
    /// also checks its privileges.
    pub async fn open_with(postgres: Arc<Postgres>, webhooks: WebhookArgs) -> Result<Self> {
        let database = postgres
            .database_like("broker_schema_of_two_roles", async |url| {
                role_create(url, SERVING).await?;
                let serving = ServingRole { name: Some(SERVING.to_owned()), ..ServingRole::default() };
                schema_migrate_with(url, &serving).await?;
                // Most tests have agents that report nothing.
                policy_set(url, &json!({ "staged": false })).await
            })
            .await?;
        let server = serve_as(&database.url_as(SERVING), None, webhooks).await?;
        Self::of(postgres, database, server).await
    }

    /// Uses a database and a replica that were set up in another way.
    pub async fn of(postgres: Arc<Postgres>, database: Database, server: Server) -> Result<Self> {
        let secret = token(&database, Role::Admin).await?;
        let writes = Arc::new(Writes { broker: Arc::clone(&server.broker), newest: Mutex::new(None) });
        let admin = Caller::of(&server, &writes, Some(secret));
        Ok(Self { server, admin, database, writes, postgres })
    }

    /// Starts a second replica on the same database.
    pub async fn replica(&self) -> Result<Server> {
        serve_as(&self.database.url_as(SERVING), None, WebhookArgs::default()).await
    }

    /// Makes it look as if silent agents had been checked for that long, until now. The next check of a replica is then
    /// not due and begins no new series: the template of the database may be older than any test.
    pub async fn checked_for(&self, interval: &str) -> Result<()> {
        let update = "UPDATE task_claims SET since = now() - $1::interval, claimed_at = now() WHERE name = 'silent_agents'";
        sqlx::query(update).bind(interval).execute(&mut self.database.connect().await?).await?;
        Ok(())
    }

    /// Stores the polls that the replica has only in memory, so that its task changes no row later.
    pub async fn store_polls(&self) -> Result<()> {
        let broker = &self.server.broker;
        let polls = broker.presence.unstored_polls();
        presence_store(&broker.pool, &polls).await?;
        broker.presence.polls_stored(&polls);
        Ok(())
    }

    pub fn without_credential(&self) -> Caller {
        Caller::of(&self.server, &self.writes, None)
    }

    pub async fn with_role(&self, role: Role) -> Result<Caller> {
        Ok(Caller::of(&self.server, &self.writes, Some(token(&self.database, role).await?)))
    }

    /// Creates a project and a token in it.
    pub async fn project(&self, name: &str, role: Role) -> Result<Caller> {
        let made = self.admin.send(Method::PUT, &format!("projects/{name}"), &json!({})).await?;
        anyhow::ensure!(made.status().is_success(), "{}", made.text().await?);
        Ok(Caller::of(&self.server, &self.writes, Some(token_in(&self.database, name, role).await?)))
    }

    /// Creates a stack and sets its targets.
    pub async fn stack(&self, name: &str, targets: Value) -> Result<Stack> {
        self.admin.send(Method::PUT, &format!("stacks/{name}"), &json!({})).await?;
        self.target(name, targets).await
    }

    pub async fn target(&self, name: &str, targets: Value) -> Result<Stack> {
        let path = format!("stacks/{name}/targets");
        let response = self.admin.send(Method::PUT, &path, &targets).await?;
        if response.status() != StatusCode::CONFLICT {
            return read(response).await;
        }
        // The change removes the stack from agents, which is intended here.
        let problem: Problem = response.json().await?;
        let expect = problem.expect.with_context(|| problem.to_string())?;
        read(self.admin.send(Method::PUT, &format!("{path}?expect={expect}"), &targets).await?).await
    }

    pub async fn submit(&self, stack: &str, yaml: &str) -> Result<DeploymentObject> {
        let path = format!("stacks/{stack}/deployment-objects");
        let response =
            self.admin.write(self.admin.request(Method::POST, &path).body(yaml.to_owned())).await?;
        read(response.error_for_status()?).await
    }

    pub async fn delete(&self, stack: &str) -> Result<DeploymentObject> {
        let request = self.admin.request(Method::DELETE, &format!("stacks/{stack}"));
        read(self.admin.write(request).await?).await
    }

    pub async fn join_token(&self, name: &str, labels: Value) -> Result<JoinToken> {
        let wanted = json!({ "agent_name": name, "labels": labels });
        read(self.admin.send(Method::POST, "join-tokens", &wanted).await?).await
    }

    /// Registers an agent and opens its first session.
    pub async fn agent(&self, name: &str, labels: Value) -> Result<Agent> {
        let token = self.join_token(name, labels).await?;
        let key = Key::generate()?;
        let registered: RegisteredAgent =
            read(register(&self.without_credential(), &token.token, &key).await?).await?;
        let mut agent = self.joined(&registered, key);
        assert_eq!(agent.open_session(1).await?, SessionVerdict::Serves);
        Ok(agent)
    }

    /// Returns an agent registered with this key, before its first session.
    pub fn joined(&self, registered: &RegisteredAgent, key: Key) -> Agent {
        Agent {
            id: registered.agent_id,
            installation: registered.installation_id,
            key,
            session: Session { count: 1, instance: InstanceId::generate() },
            holds: Vec::new(),
            capabilities: without_upgrades(),
            address: self.server.address,
            writes: Arc::clone(&self.writes),
        }
    }
}

/// Returns the capabilities of an agent of which the owner allows no upgrades.
fn without_upgrades() -> Capabilities {
    [Capability::KeyRotation, Capability::ReasonDetails].into_iter().collect()
}

/// Waits until the index of a replica has everything that is committed.
pub async fn current(broker: &Broker) -> Result<()> {
    broker.index_is_current().await.map_err(|error| anyhow::anyhow!("{error:?}"))
}

/// Creates a role that may log in, if it does not exist.
pub async fn role_create(url: &str, role: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)")
        .bind(role)
        .fetch_one(&mut connection)
        .await?;
    if !exists {
        let create = sqlx::AssertSqlSafe(format!("CREATE ROLE {role} LOGIN"));
        sqlx::query(create).execute(&mut connection).await?;
    }
    Ok(())
}

/// Starts a replica, with TLS if a certificate and its key are given.
pub async fn serve_with(database: &Database, tls: Option<(PathBuf, PathBuf)>) -> Result<Server> {
    serve_all(database, tls, WebhookArgs::default()).await
}

pub async fn serve_all(
    database: &Database,
    tls: Option<(PathBuf, PathBuf)>,
    webhooks: WebhookArgs,
) -> Result<Server> {
    serve_as(&database.url(), tls, webhooks).await
}

async fn serve_as(url: &str, tls: Option<(PathBuf, PathBuf)>, webhooks: WebhookArgs) -> Result<Server> {
    let (tls_cert, tls_key) = tls.unzip();
    // Fails if it is already installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // Tests drop old audit entries themselves.
    let retention = RetentionArgs { audit_days: 36_500, ..RetentionArgs::default() };
    let args = ServeArgs { tls_cert, tls_key, webhooks, retention, ..ServeArgs::on_loopback(url) };
    Ok(Server::start(args).await?)
}

/// Starts a replica without TLS, with other settings.
pub async fn serve_changed(database: &Database, change: impl FnOnce(&mut ServeArgs)) -> Result<Server> {
    let mut args = ServeArgs::on_loopback(&database.url());
    change(&mut args);
    Ok(Server::start(args).await?)
}

pub async fn token(database: &Database, role: Role) -> Result<String> {
    token_in(database, DEFAULT_PROJECT, role).await
}

pub async fn token_in(database: &Database, project: &str, role: Role) -> Result<String> {
    let secret = Secret::generate(SecretKind::ApiToken);
    let mut connection = database.connect().await?;
    let token = NewApiToken {
        project,
        id: TokenId::generate(),
        name: "test",
        role,
        hash: &secret.hash(),
        created_by: None,
        expires_at: None,
    };
    api_token_insert_on_conn(&mut connection, token).await?;
    Ok(secret.expose().to_owned())
}

/// A caller, with or without a credential.
#[derive(Clone)]
pub struct Caller {
    http: reqwest::Client,
    pub base: String,
    /// A token, or an agent's assertion for reading.
    credential: Option<String>,
    /// The agent that signs each write.
    signer: Option<Signer>,
    /// Absent for callers whose writes are not waited for.
    writes: Option<Arc<Writes>>,
}

/// The newest write of a test. The broker itself waits only for a moment until the index has a write, and open
/// transactions of other tests on the same server can delay the index for longer.
pub struct Writes {
    broker: Arc<Broker>,
    newest: Mutex<Option<Position>>,
}

impl Writes {
    fn note(&self, response: &Response) {
        let mut newest = self.newest.lock().expect("no panic");
        *newest = (*newest).max(position(response).map(|token| token.position));
    }

    /// Waits until the index has the newest write.
    async fn are_applied(&self) {
        let newest = *self.newest.lock().expect("no panic");
        if let Some(newest) = newest {
            self.broker.index.reached(newest, INDEX_DEADLINE).await;
        }
    }
}

impl Caller {
    pub fn new(address: SocketAddr, credential: Option<String>) -> Self {
        let http = reqwest::Client::builder().no_proxy().no_gzip().build().expect("a plain client");
        Self { http, base: format!("http://{address}"), credential, signer: None, writes: None }
    }

    fn of(server: &Server, writes: &Arc<Writes>, credential: Option<String>) -> Self {
        Self { writes: Some(Arc::clone(writes)), ..Self::new(server.address, credential) }
    }

    /// Returns the same caller, for tests that keep the index from applying a write.
    pub fn without_waiting(&self) -> Self {
        Self { writes: None, ..self.clone() }
    }

    /// Returns a caller with another token.
    pub fn with_token(&self, token: String) -> Self {
        Self { credential: Some(token), ..self.clone() }
    }

    /// Returns the same caller at another replica.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self { base: format!("http://{address}"), ..self.without_waiting() }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/api/v1/{path}") };
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.credential {
            Some(session) if self.has_session() => as_console(request, session),
            Some(credential) => request.bearer_auth(credential),
            None => request,
        }
    }

    /// Returns whether the credential is a session, which is sent as a cookie.
    pub fn has_session(&self) -> bool {
        self.credential.as_ref().is_some_and(|credential| credential.starts_with("brs_"))
    }

    /// Opens a session with the token of this caller, as the console does. Returns a caller that has only the session.
    pub async fn sign_in(&self) -> Result<Self> {
        let request = self.request(Method::POST, "sessions").header(header::CONSOLE, "1");
        Ok(self.with_token(session_secret(&request.send().await?.error_for_status()?)?))
    }

    pub async fn get(&self, path: &str) -> Result<Response> {
        if let Some(writes) = &self.writes {
            writes.are_applied().await;
        }
        Ok(self.request(Method::GET, path).send().await?)
    }

    pub async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        read(self.get(path).await?).await
    }

    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Response> {
        self.write(self.request(method, path).json(body)).await
    }

    /// Returns the request with the credential for it: each write of an agent needs its own.
    pub fn signed(&self, request: RequestBuilder) -> Result<RequestBuilder> {
        let (client, request) = request.build_split();
        let mut request = request?;
        if let Some(signer) = self.signer.as_ref().filter(|_| request.method() != Method::GET) {
            let assertion = signer.write_assertion(bound(&request))?;
            request.headers_mut().insert(AUTHORIZATION, format!("Bearer {assertion}").parse()?);
        }
        Ok(RequestBuilder::from_parts(client, request))
    }

    pub async fn write(&self, request: RequestBuilder) -> Result<Response> {
        let response = self.signed(request)?.send().await?;
        if let Some(writes) = &self.writes {
            writes.note(&response);
        }
        Ok(response)
    }
}

/// Adds the cookie and the headers with which the console sends a request.
pub fn as_console(request: RequestBuilder, session: &str) -> RequestBuilder {
    with_cookie(request, session).header(header::CONSOLE, "1").header("sec-fetch-site", "same-origin")
}

/// Adds the cookie, which a browser adds to requests of other sites as well.
pub fn with_cookie(request: RequestBuilder, session: &str) -> RequestBuilder {
    request.header("cookie", format!("__Host-brokkr={session}"))
}

/// Returns the secret in the cookie that a response sets.
pub fn session_secret(response: &Response) -> Result<String> {
    let set = response.headers().get("set-cookie").context("the response sets no cookie")?.to_str()?;
    let value = set.strip_prefix("__Host-brokkr=").and_then(|rest| rest.split(';').next());
    Ok(value.context("the cookie has another name")?.to_owned())
}

/// Returns what the assertion of an agent's request is bound to.
pub fn bound(request: &reqwest::Request) -> BoundRequest {
    let text = |name: &str| request.headers().get(name)?.to_str().ok().map(str::to_owned);
    let url = request.url();
    BoundRequest {
        method: request.method().to_string(),
        path: url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path())),
        idempotency_key: text(header::IDEMPOTENCY_KEY),
        session: text(header::SESSION),
        body: Checksum::of(request.body().and_then(|body| body.as_bytes()).unwrap_or_default()),
    }
}

/// An agent that signs its requests.
#[derive(Clone)]
pub struct Signer {
    pub agent: AgentId,
    pub installation: InstallationId,
    pub key: Key,
}

impl Signer {
    /// Returns the claims of an assertion for this request, or for reading.
    pub fn claims(&self, request: Option<BoundRequest>) -> Value {
        let now = jiff::Timestamp::now().as_second();
        json!(AssertionClaims::new(self.agent, self.installation, now, request))
    }

    pub fn write_assertion(&self, request: BoundRequest) -> Result<String> {
        self.key.sign(&self.claims(Some(request)))
    }

    /// Returns the body of a request that replaces the key by `next`.
    pub fn key_change(&self, next: &Key) -> Result<RotateKey> {
        let (old_key, new_key) = (self.key.bytes()?, next.bytes()?);
        let message = key_change_message(self.installation, self.agent, &old_key, &new_key);
        Ok(RotateKey {
            public_key: next.public.clone(),
            old_public_key: self.key.public.clone(),
            signature: next.signature(&message),
            old_signature: self.key.signature(&message),
        })
    }
}

/// A key pair of an agent.
#[derive(Clone)]
pub struct Key {
    private: EncodingKey,
    pair: Arc<Ed25519KeyPair>,
    pub public: String,
}

impl Key {
    pub fn generate() -> Result<Self> {
        let document = Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new())?;
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref())?;
        let public = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let private = EncodingKey::from_ed_der(document.as_ref());
        Ok(Self { private, pair: Arc::new(pair), public })
    }

    /// Returns the public key as stored in the database.
    pub fn bytes(&self) -> Result<PublicKey> {
        Ok(self.pair.public_key().as_ref().try_into()?)
    }

    pub fn signature(&self, message: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(message))
    }

    /// Returns the body of a registration.
    pub fn registration(&self, token: &str) -> Result<RegisterAgent> {
        let signature = self.signature(&registration_message(token, &self.bytes()?));
        Ok(RegisterAgent { token: token.to_owned(), public_key: self.public.clone(), signature })
    }

    pub fn sign(&self, claims: &Value) -> Result<String> {
        Ok(jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), claims, &self.private)?)
    }
}

pub async fn register(caller: &Caller, token: &str, key: &Key) -> Result<Response> {
    caller.send(Method::POST, "agents/register", &json!(key.registration(token)?)).await
}

/// A simulated agent: it speaks the protocol and has no cluster.
pub struct Agent {
    pub id: AgentId,
    pub installation: InstallationId,
    pub key: Key,
    pub session: Session,
    pub holds: Vec<StackId>,
    /// What its polls announce.
    pub capabilities: Capabilities,
    address: SocketAddr,
    writes: Arc<Writes>,
}

/// The response to a poll.
#[derive(Debug)]
pub struct Polled {
    pub status: StatusCode,
    pub etag: String,
    pub position: Option<PositionToken>,
    pub body: Vec<u8>,
    pub headers: reqwest::header::HeaderMap,
}

impl Polled {
    pub fn envelope(&self) -> Result<brokkr_api::envelope::Envelope> {
        assert_eq!(self.status, StatusCode::OK, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(
            self.etag,
            format!("\"{}\"", Checksum::of(&self.body)),
            "the tag is the digest of the bytes"
        );
        Ok(serde_json::from_slice(&self.body)?)
    }

    pub fn code(&self) -> Result<ErrorCode> {
        Ok(serde_json::from_slice::<Problem>(&self.body)?.code)
    }
}

/// A version of a stack, as an agent reports it.
pub fn held(stack: StackId, name: &str, sequence: i64) -> HeldStack {
    HeldStack {
        stack_id: stack,
        project: DEFAULT_PROJECT.into(),
        stack_name: name.into(),
        sequence_id: SequenceId(sequence),
        checksum: Some(Checksum::of(name.as_bytes())),
        removing: false,
    }
}

impl Agent {
    /// Returns the claims of an assertion for reading.
    pub fn claims(&self) -> Value {
        self.signer().claims(None)
    }

    pub fn signer(&self) -> Signer {
        Signer { agent: self.id, installation: self.installation, key: self.key.clone() }
    }

    pub fn caller(&self) -> Caller {
        self.at(self.address)
    }

    /// Returns the agent as a caller of another replica.
    pub fn at(&self, address: SocketAddr) -> Caller {
        let credential = Some(self.key.sign(&self.claims()).expect("it can sign"));
        let writes = Some(Arc::clone(&self.writes));
        Caller { writes, signer: Some(self.signer()), ..Caller::new(address, credential) }
    }

    pub fn path(&self, rest: &str) -> String {
        format!("agents/{}/{rest}", self.id)
    }

    pub async fn open_session(&mut self, count: i64) -> Result<SessionVerdict> {
        self.session.count = count;
        let body = json!({ "count": count, "instance": self.session.instance });
        let opened: OpenedSession =
            read(self.caller().send(Method::POST, &self.path("session"), &body).await?).await?;
        Ok(opened.verdict)
    }

    pub async fn hold(&mut self, stacks: &[StackId]) -> Result<()> {
        self.holds = stacks.to_vec();
        let response =
            self.caller().send(Method::PUT, &self.path("holds"), &json!({ "stacks": stacks })).await?;
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        Ok(())
    }

    /// Says that it has these stacks, as agents do when they are asked.
    pub async fn have(&mut self, stacks: &[StackId]) -> Result<()> {
        let held: Vec<HeldStack> = stacks.iter().map(|stack| held(*stack, "some", 1)).collect();
        self.have_versions(held).await
    }

    /// Says that it has these versions of stacks. A replica that has just learned of a restore asks to try again.
    pub async fn have_versions(&mut self, held: Vec<HeldStack>) -> Result<()> {
        self.holds = held.iter().map(|held| held.stack_id).collect();
        let (path, body) = (self.path("holds"), json!({ "stacks": self.holds, "held": held }));
        eventually(INDEX_DEADLINE, "the stacks to be stored", async || {
            match self.caller().send(Method::PUT, &path, &body).await {
                Ok(response) if response.status() == StatusCode::NO_CONTENT => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            }
        })
        .await
    }

    pub fn poll_request(&self) -> RequestBuilder {
        self.poll_request_at(self.address)
    }

    pub fn poll_request_at(&self, address: SocketAddr) -> RequestBuilder {
        self.at(address)
            .request(Method::GET, &self.path("target-state"))
            .header("accept", ENVELOPE_MEDIA_TYPE)
            .header(header::PROTOCOL, "1")
            .header(header::CAPABILITIES, self.capabilities.to_string())
            .header(header::SESSION, self.session.to_string())
            .header(header::HOLDS, holds_digest(self.holds.iter().copied()).to_string())
    }

    pub async fn poll(&self) -> Result<Polled> {
        self.writes.are_applied().await;
        polled(self.poll_request()).await
    }

    /// Sends a long poll.
    pub async fn wait(&self, etag: &str, seconds: u64) -> Result<Polled> {
        polled(self.poll_request().header("if-none-match", etag).header("prefer", format!("wait={seconds}")))
            .await
    }

    pub fn report(
        &self,
        stack: StackId,
        sequence: SequenceId,
        transition: Transition,
        second: i64,
    ) -> Report {
        let mut report = Report {
            id: brokkr_api::EventId::generate(),
            stack_id: stack,
            sequence_id: sequence,
            transition,
            at: jiff::Timestamp::from_second(second).expect("a time"),
            hops: brokkr_api::report::Hops::default(),
            reason: Reason::None,
            message: Message::default(),
            objects: Vec::new(),
            conditions: Vec::new(),
            dropped: 0,
            ready: 1,
            total: 1,
        };
        report.id = report.derived_id(self.id);
        report
    }

    pub async fn send_reports(&self, reports: &[Report]) -> Result<Response> {
        self.caller().send(Method::POST, &self.path("reports"), &json!({ "reports": reports })).await
    }
}

pub async fn polled(request: RequestBuilder) -> Result<Polled> {
    let response = request.send().await?;
    let text =
        |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok(Polled {
        status: response.status(),
        etag: text("etag").unwrap_or_default(),
        position: text(header::POSITION).and_then(|text| text.parse().ok()),
        headers: response.headers().clone(),
        body: response.bytes().await?.to_vec(),
    })
}

/// Reads a successful response; fails with the body of any other.
pub async fn read<T: DeserializeOwned>(response: Response) -> Result<T> {
    let (status, url) = (response.status(), response.url().clone());
    let body = response.bytes().await?;
    anyhow::ensure!(status.is_success(), "{url}: {status}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).with_context(|| format!("{url}: {}", String::from_utf8_lossy(&body)))
}

/// Returns the code of a refusal.
pub async fn refused(response: Response) -> Result<ErrorCode> {
    let status = response.status();
    let kind = response.headers().get("content-type").cloned();
    let body = response.bytes().await?;
    anyhow::ensure!(!status.is_success(), "it was not refused: {}", String::from_utf8_lossy(&body));
    assert_eq!(kind.as_ref().and_then(|kind| kind.to_str().ok()), Some("application/problem+json"));
    let problem: Problem = serde_json::from_slice(&body)?;
    assert_eq!(problem.status, status.as_u16());
    assert!(!problem.request_id.is_empty());
    Ok(problem.code)
}

pub fn position(response: &Response) -> Option<PositionToken> {
    response.headers().get(header::POSITION)?.to_str().ok()?.parse().ok()
}
