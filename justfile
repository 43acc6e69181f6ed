# Tasks of contributors: `just` lists them. Each is one command, which also works without just.

everything := "--workspace --exclude balde-bench --all-features"

# List the tasks
default:
    @just --list

# Format and lint, as the whole test run does
lint:
    cargo fmt --all --check
    cargo clippy {{ everything }} --all-targets -- -D warnings

# One test target, such as `just test gateway`, or one test of it: `just test gateway promise`
test target *filter:
    BALDE_TEST_PATIENT_REDIS=1 cargo test {{ everything }} --test {{ target }} {{ filter }}

# The unit tests of all crates
unit:
    cargo test {{ everything }} --lib

# The whole test run: installs and starts what it needs
all:
    ./scripts/test.sh

# Each set of features of the SDK alone
features:
    scripts/features.sh --sdk

# The demonstration
up:
    cargo run --release -- up

# Fuzz targets, SECONDS each
fuzz seconds="60":
    scripts/fuzz.sh {{ seconds }}

# Instructions of a decision, beside an earlier revision
instructions revision="":
    scripts/count-instructions.sh {{ revision }}

# All parts under load with a fault every minute, and a verdict
soak minutes="5":
    scripts/soak.sh {{ minutes }}

# Latency and throughput beside the figures that were asked for
load:
    scripts/load.sh

# The lines that the tests run
coverage *options:
    scripts/coverage.sh {{ options }}

# Bugs planted one at a time, each of which a test must catch
planted-bugs *names:
    scripts/planted-bugs.sh {{ names }}

# Licences, sources and known vulnerabilities of dependencies
supply-chain:
    scripts/supply-chain.sh
