# The menu. What has logic is in xtask; what is here is a word for a command.

# Show this menu
default:
    @just --list --unsorted

# Build the real engines that tests run on (minutes once, then at once)
engines:
    cargo xtask engines

# A whole Brokkr on this machine until Ctrl-C: PostgreSQL, a broker, clusters with agents
dev clusters="2":
    cargo xtask dev --clusters {{ clusters }}

# Every test, on shared engines; with a word, only tests whose names contain it
test *filter:
    cargo xtask test {{ filter }}

# The end-to-end tests; `just e2e NAME --seed N` replays one
e2e *arguments:
    cargo xtask e2e {{ arguments }}

# The agent's fault matrix in full: every row, every step, 200 pairs of faults
faults *arguments:
    cargo xtask faults agent {{ arguments }}

# Tests that need no engine: the pure ones
unit:
    cargo test --workspace --lib --locked

# Which promise is proven by which test
contract:
    cargo xtask contract

# The OpenAPI document and the pages of docs/reference, anew from the code
docs:
    cargo xtask docs

# The documentation as a book of web pages, in target/book
book:
    cargo xtask book

# The agent at full size beside its peers; `just bench --only create --rounds 5`
bench *arguments:
    cargo xtask bench agent {{ arguments }}

# Write the code in the house's layout
format:
    cargo fmt --all

# What the compiler can hold: layout, lints
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings

# What may be in the house: licences, sources, banned crates
deny:
    cargo deny --locked check licenses bans sources

# Write snapshots anew where they changed on purpose, and look at the difference afterwards
snapshots:
    INSTA_UPDATE=always cargo xtask test
    git diff --stat -- '*.snap' docs README.md

# Everything that CI does, from the same file
ci:
    .ci/run
