# Everything that CI runs: format, lints, layering, tests, audit budgets.
check:
    scripts/test

# Format, clippy with warnings denied, dependencies that point down only.
lint:
    scripts/lint

# The tests that Miri can run: undefined behaviour, data races, pointers past what they were made for.
miri *ARGS:
    scripts/miri {{ARGS}}

# Known faults, licences and sources of the dependencies (cargo install cargo-deny).
deny:
    cargo deny --workspace check

# Count what the hot calls execute and hold it against crates/audit/budgets.toml.
audit:
    cargo build --release -p lightpath -p lp-audit
    target/release/lp-audit check

# Kill a process at every instruction of the calls that change something, and at random. Takes long. `cargo test`
# alone tries a random instruction in each 101; DEATHS_SEED, which it prints, repeats its choice.
crash:
    DEATHS=1 cargo test --release -p lp-vfs --test deaths --test deaths_of_writers --test deaths_of_cutters
    LIGHTPATH_CRASH_ROUNDS=2000 cargo test --release -p lp-vfs --test crash

# Damage copies of a region at random, COUNT of them, then open, check, use and mend each.
fuzz-region COUNT="100000" *ARGS:
    cargo test --release -p lp-fsck --test fuzz -- --count {{COUNT}} {{ARGS}}

# Let the power go at random moments of a workload, IMAGES times, and rebuild what the device may hold then.
power IMAGES="30000" *ARGS:
    cargo test --release -p lp-fsck --test power -- --images {{IMAGES}} {{ARGS}}

# Processes that kill, stop, signal and exec each other on a mount, for so many seconds, and each kind of trouble by itself.
storm SECONDS="3600" *ARGS:
    LP_STORM_SECONDS={{SECONDS}} LP_STORM_FULL=1 cargo test --release -p lp-tests --test storm -- --nocapture {{ARGS}}

# Stop a process after each instruction of each call while others go on. Takes hours: see docs/explorer.md.
explore *ARGS:
    cargo build --release -p lp-explore --features order
    target/release/lp-explore {{ARGS}}

# The same through the gate, of real processes.
explore-gate *ARGS="--stride 97":
    cargo build --release -p lightpath
    cargo build --release -p lp-explore --features order
    target/release/lp-explore --gate {{ARGS}}

# All workloads, side by side with the kernel's file systems.
bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# The figures to reach, beside tmpfs in one run.
figures *ARGS:
    scripts/figures.sh {{ARGS}}

# Lightpath's library beside the other file systems that live in a Rust program's memory.
bench-peers *ARGS:
    cargo run --release --manifest-path crates/peers/Cargo.toml -- {{ARGS}}
