//! Seeded bugs: the rows are only worth something if they find what is wrong. `cargo xtask faults seeded` builds the
//! agent with a bug in it (feature `seeded-bugs`, `BROKKR_SEEDED_BUG=name`) and requires that a row fails. This is the
//! list that it goes by.

/// A bug that the agent can be told to have, and a row that must not pass with it.
pub const BUGS: [(&str, &str); 6] = [
    ("delete-without-uid", "row_27"),
    ("prune-on-empty-list", "row_35_half"),
    ("report-before-apply", "row_23"),
    ("older-sequence-accepted", "row_45"),
    ("owner-check-on-cached-copy", "row_34"),
    ("inventory-after-apply", "row_19"),
];
