//! Tokens and assertions: no forged credential is accepted.
#![no_main]

use std::sync::LazyLock;

use brokkr_api::InstallationId;
use brokkr_broker::access::assertion::Assertions;
use brokkr_broker::access::binding::RequestHead;
use brokkr_broker::access::secret::{Secret, SecretKind};
use brokkr_broker::error::ApiError;
use brokkr_broker::index::Index;
use libfuzzer_sys::fuzz_target;
use sqlx::PgPool;
use tokio::runtime::Runtime;

struct World {
    runtime: Runtime,
    assertions: Assertions,
    index: Index,
    /// Never connected: no agent is known, so no other keys are looked up.
    pool: PgPool,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let installation = InstallationId(uuid::Uuid::from_u128(1));
    let pool =
        runtime.block_on(async { PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/none").expect("lazy") });
    World { assertions: Assertions::new(installation), index: Index::new(installation), pool, runtime }
});

fuzz_target!(|text: &str| {
    for kind in [SecretKind::ApiToken, SecretKind::JoinToken, SecretKind::Session] {
        if let Some(secret) = Secret::read(kind, text) {
            assert_eq!(secret.expose(), text);
        }
    }
    let world = &*WORLD;
    let (index, pool, now) = (&world.index, &world.pool, 1_800_000_000);
    // Nobody limits the fuzzer.
    let admit = || std::future::ready(Ok::<(), ApiError>(()));
    let read = world.runtime.block_on(world.assertions.verify_read(index, pool, text, now, admit()));
    assert!(read.is_err());
    let head =
        RequestHead { method: "PUT", path: "/api/v1/agents/a/holds", idempotency_key: None, session: None };
    let written =
        world.runtime.block_on(world.assertions.verify_write(index, pool, text, &head, now, admit()));
    assert!(written.is_err());
});
