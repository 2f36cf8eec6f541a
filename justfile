# Short names for commands. Logic belongs in xtask.

# List the recipes
default:
    @just --list --unsorted

# Build the engines that tests run on (takes minutes the first time)
engines:
    cargo xtask engines

# Run a complete Brokkr until Ctrl-C: PostgreSQL, a broker, clusters with agents
dev clusters="2":
    cargo xtask dev --clusters {{ clusters }}

# Run the demo on two kind clusters (needs docker, kind, kubectl and brokkr); `just demo down` removes it
demo *arguments:
    demo/kind.sh {{ arguments }}

# Run every test on shared engines, or only tests with this text in their names
test *filter:
    cargo xtask test {{ filter }}

# Run the end-to-end tests; `just e2e NAME --seed N` replays one
e2e *arguments:
    cargo xtask e2e {{ arguments }}

# Run the agent's full fault matrix: every row, every step, 200 pairs of faults
faults *arguments:
    cargo xtask faults agent {{ arguments }}

# Run the unit tests, which need no engines
unit:
    cargo test --workspace --lib --locked

# List which tests prove which promise
contract:
    cargo xtask contract

# Generate the OpenAPI document and the pages of docs/reference from the code
docs:
    cargo xtask docs

# Build the documentation as web pages, in target/book
book:
    cargo xtask book

# Build the web console, which the next build of the broker then contains (needs npm)
console *arguments:
    cargo xtask console {{ arguments }}

# Measure the agent beside its peers; `just bench --only create --rounds 5`
bench *arguments:
    cargo xtask bench agent {{ arguments }}

# Format the code
format:
    cargo fmt --all

# Check format and lints
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Check shell scripts, workflows and the compose file
scripts:
    .ci/check-scripts

# Check licences, sources and banned crates
deny:
    cargo deny --locked check licenses bans sources

# Update snapshots and generated pages, then review the diff
snapshots:
    INSTA_UPDATE=always cargo xtask test
    git diff --stat -- '*.snap' docs README.md

# Run everything that CI runs
ci:
    .ci/run
