//! G3: twenty real failures. For each, the CLI and the API return the right hop, cause and next step in under
//! a second, and the next step is carried out. The explanations are compared with the rows of docs/why.md.

mod agents;
mod asking;
mod pods;
mod refusals;
mod restored;
mod waits;
