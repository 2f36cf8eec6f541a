//! End-to-end tests: the broker, agents and the command line as real processes, on a real PostgreSQL and
//! real clusters. Each reads like the promise that it proves, and names its id.

mod administering;
mod admission_policy;
mod adoption;
mod alone;
mod causes;
mod charts;
mod conditions;
mod contests;
mod crashes;
mod deletion;
mod delivery;
mod drift;
mod failing;
mod isolation;
mod joining;
mod journey;
mod journeys;
mod keys;
mod leaving;
mod monitoring;
mod moving;
mod observe;
mod orders;
mod pages;
mod pods;
mod pull;
mod quiet;
mod records;
mod restoring;
mod retarget;
mod rights;
mod validation;
mod why;
mod wrong_answers;
mod yielding;
