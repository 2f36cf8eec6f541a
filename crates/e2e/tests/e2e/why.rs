//! G3: twenty broken situations, made for real. Each is asked about by command line and API alike, answered with the right
//! hop, cause and next step in under a second, and the next step is done as it was told. The rows of docs/why.md are held
//! against what was told.

mod agents;
mod asking;
mod pods;
mod refusals;
mod restored;
mod waits;
