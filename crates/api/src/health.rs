//! The health of a broker replica, as `/livez` and `/readyz` return it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The health of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Whether the replica is fully functional.
    pub whole: bool,
    /// The parts that do not work, with cause and consequence.
    pub causes: Vec<Trouble>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trouble {
    /// The part that does not work.
    pub part: String,
    pub detail: String,
}
