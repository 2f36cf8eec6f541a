//! How a replica of the broker is, as `/livez` and `/readyz` tell it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a replica is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Whether it does everything that it should.
    pub whole: bool,
    /// What it cannot do, why, and what that means.
    pub causes: Vec<Trouble>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trouble {
    /// The part that is in trouble.
    pub part: String,
    pub detail: String,
}
