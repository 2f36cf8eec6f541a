//! A small API server inside the test: it lists, streams and watches objects, and fails on demand.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::channel::mpsc;
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// The type of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptedRequest {
    List,
    /// A list and a watch in one.
    Stream,
    Watch,
}

/// How one request fails.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Refused(u16),
    /// The connection stays open, but no data is ever sent.
    Frozen,
    /// 500 for any page except the first.
    SecondPage,
}

type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

pub struct World {
    version: u64,
    /// By path of the collection and name.
    objects: BTreeMap<(String, String), Value>,
    past: Vec<(u64, String, Value)>,
    watchers: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    faults: VecDeque<(ScriptedRequest, Fault)>,
    /// Responses to requests for other paths, such as discovery.
    pub fixed: BTreeMap<String, Value>,
    /// Collections that are not served.
    pub unserved: Vec<String>,
    pub forbidden: bool,
    pub page: usize,
    pub minor: u32,
    pub asked: Vec<(ScriptedRequest, String)>,
    pub accepts: Vec<String>,
    pub listing_now: usize,
    pub most_listing: usize,
}

#[derive(Clone)]
pub struct Server(Arc<Mutex<World>>);

impl Server {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(World {
            version: 100,
            objects: BTreeMap::new(),
            past: Vec::new(),
            watchers: Vec::new(),
            faults: VecDeque::new(),
            fixed: BTreeMap::new(),
            unserved: Vec::new(),
            forbidden: false,
            page: 1000,
            minor: 33,
            asked: Vec::new(),
            accepts: Vec::new(),
            listing_now: 0,
            most_listing: 0,
        })))
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    pub fn asked(&self, ask: ScriptedRequest) -> usize {
        self.world().asked.iter().filter(|(asked, _)| *asked == ask).count()
    }

    /// Makes the next requests of this type fail, one for each fault.
    pub fn fail(&self, ask: ScriptedRequest, faults: &[Fault]) {
        self.world().faults.extend(faults.iter().map(|fault| (ask, *fault)));
    }

    pub fn fail_second_page(&self) {
        self.fail(ScriptedRequest::List, &[Fault::SecondPage]);
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<ResponseBody>, Infallible> {
        let (request, _) = request.into_parts();
        let (path, query) = (request.uri.path().to_owned(), request.uri.query().unwrap_or_default());
        let ask = match () {
            () if query.contains("sendInitialEvents") => ScriptedRequest::Stream,
            () if query.contains("watch=true") => ScriptedRequest::Watch,
            () if query.contains("limit=") => ScriptedRequest::List,
            () => return Ok(self.world().fixed(&path)),
        };
        let fault = {
            let mut world = self.world();
            world.asked.push((ask, request.uri.to_string()));
            world.accepts.push(request.headers["accept"].to_str().unwrap().to_owned());
            let second = query.contains("continue=");
            let hits = |(of, fault): &(ScriptedRequest, Fault)| {
                *of == ask && (second || !matches!(fault, Fault::SecondPage))
            };
            let next = world.faults.iter().position(hits);
            next.and_then(|at| world.faults.remove(at))
        };
        if ask == ScriptedRequest::List {
            self.world().listing_now += 1;
            // Long enough for other lists to run at the same time, if they are allowed to.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            let mut world = self.world();
            world.most_listing = world.most_listing.max(world.listing_now);
            world.listing_now -= 1;
        }
        match fault {
            Some((_, Fault::Refused(code))) => return Ok(status(code)),
            Some((_, Fault::SecondPage)) => return Ok(status(500)),
            Some((_, Fault::Frozen)) => {
                return Ok(open_answer(stream::pending()));
            }
            None => {}
        }
        let mut world = self.world();
        if world.unserved.contains(&path) {
            return Ok(status(404));
        }
        if world.forbidden {
            return Ok(status(403));
        }
        Ok(match ask {
            ScriptedRequest::List => world.list(&path, query),
            ScriptedRequest::Stream => world.stream(&path),
            ScriptedRequest::Watch => world.watch(&path, query),
        })
    }
}

impl World {
    /// Makes discovery serve the kind Widget in these versions.
    pub fn serve_widgets(&mut self, versions: &[&str]) {
        let listed: Vec<Value> = versions
            .iter()
            .map(|version| json!({"groupVersion": format!("shop.example/{version}"), "version": version}))
            .collect();
        self.fixed.insert("/apis/shop.example".into(), json!({"name": "shop.example", "versions": listed}));
        for version in versions {
            self.fixed.insert(format!("/apis/shop.example/{version}"), resources("Widget", "widgets"));
        }
    }

    pub fn serve_maps(&mut self) {
        self.fixed.insert("/api/v1".into(), resources("ConfigMap", "configmaps"));
    }

    /// Creates or changes an object.
    pub fn put(&mut self, path: &str, name: &str, uid: &str) {
        self.put_silently(path, name, uid);
        let object = self.objects[&(path.to_owned(), name.to_owned())].clone();
        self.happened(path, "MODIFIED", object);
    }

    /// Creates or changes an object without an event.
    pub fn put_silently(&mut self, path: &str, name: &str, uid: &str) {
        self.version += 1;
        let namespace = path.split("/namespaces/").nth(1).map(|rest| rest.split('/').next());
        let object = json!({"metadata": {
            "name": name, "namespace": namespace.flatten().unwrap_or("shop"), "uid": uid,
            "resourceVersion": self.version.to_string(),
        }});
        self.objects.insert((path.to_owned(), name.to_owned()), object);
    }

    pub fn put_raw(&mut self, path: &str, name: &str, object: Value) {
        self.objects.insert((path.to_owned(), name.to_owned()), object);
    }

    pub fn delete_silently(&mut self, path: &str, name: &str) -> Value {
        self.version += 1;
        let mut object = self.objects.remove(&(path.to_owned(), name.to_owned())).unwrap();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object
    }

    pub fn delete(&mut self, path: &str, name: &str) -> Value {
        let object = self.delete_silently(path, name);
        self.happened(path, "DELETED", object.clone());
        object
    }

    /// Sends a line to the open watches, and stores it for those that resume.
    pub fn happened(&mut self, path: &str, what: &str, object: Value) {
        let line = json!({"type": what, "object": object});
        self.past.push((self.version, path.to_owned(), line.clone()));
        self.send(path, &line);
    }

    /// Sends a line to the open watches only.
    pub fn send(&mut self, path: &str, line: &Value) {
        self.watchers.retain(|(of, to)| of != path || to.unbounded_send(framed(line)).is_ok());
    }

    pub fn hang_up(&mut self) {
        self.watchers.clear();
    }

    pub fn watched(&self, path: &str) -> bool {
        self.watchers.iter().any(|(of, to)| of == path && !to.is_closed())
    }

    fn of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |((of, _), _)| of == path).map(|(_, object)| object)
    }

    fn list(&self, path: &str, query: &str) -> Response<ResponseBody> {
        let from: usize = query
            .split('&')
            .find_map(|part| part.strip_prefix("continue="))
            .map_or(0, |token| token.parse().unwrap());
        let items: Vec<&Value> = self.of(path).skip(from).take(self.page).collect();
        let more = self.of(path).count() > from + items.len();
        let next = if more { (from + items.len()).to_string() } else { String::new() };
        json_answer(
            200,
            &json!({
                "metadata": {"resourceVersion": self.version.to_string(), "continue": next},
                "items": if items.is_empty() { Value::Null } else { json!(items) },
            }),
        )
    }

    fn stream(&mut self, path: &str) -> Response<ResponseBody> {
        let mut lines: Vec<Value> =
            self.of(path).map(|object| json!({"type": "ADDED", "object": object})).collect();
        lines.push(json!({"type": "BOOKMARK", "object": {"metadata": {
            "resourceVersion": self.version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }}}));
        self.open(path, lines)
    }

    fn watch(&mut self, path: &str, query: &str) -> Response<ResponseBody> {
        let since: u64 = query
            .split('&')
            .find_map(|part| part.strip_prefix("resourceVersion="))
            .map_or(0, |version| version.parse().unwrap());
        let missed = self.past.iter().filter(|(at, of, _)| *at > since && of == path);
        let lines = missed.map(|(_, _, line)| line.clone()).collect();
        self.open(path, lines)
    }

    fn open(&mut self, path: &str, first: Vec<Value>) -> Response<ResponseBody> {
        let (to, lines) = mpsc::unbounded();
        for line in &first {
            to.unbounded_send(framed(line)).unwrap();
        }
        self.watchers.push((path.to_owned(), to));
        open_answer(lines)
    }

    fn fixed(&self, path: &str) -> Response<ResponseBody> {
        if path == "/version" {
            return json_answer(200, &json!({"major": "1", "minor": format!("{}+", self.minor)}));
        }
        self.fixed.get(path).map_or_else(|| status(404), |answer| json_answer(200, answer))
    }
}

fn resources(kind: &str, plural: &str) -> Value {
    json!({"groupVersion": "as asked", "resources": [
        {"name": plural, "singularName": "", "kind": kind, "namespaced": true, "verbs": ["list", "watch"]},
    ]})
}

fn framed(line: &Value) -> Bytes {
    Bytes::from(format!("{line}\n"))
}

/// Returns a response with a body that ends with the stream.
fn open_answer(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response<ResponseBody> {
    let frames = lines.flat_map(|line| BodyStream::new(Full::new(line)));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn status(code: u16) -> Response<ResponseBody> {
    json_answer(
        code,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "as scripted", "reason": "Scripted", "code": code,
        }),
    )
}

fn json_answer(code: u16, body: &Value) -> Response<ResponseBody> {
    Response::builder().status(code).body(Full::new(Bytes::from(body.to_string())).boxed_unsync()).unwrap()
}
