# The commands of this repository; `make` alone lists them. They need Go, git, make
# and gcc (for the race detector).

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules --warn-undefined-variables
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Settings of the caller: make fuzz T=5m
GO         ?= go
GOFLAGS    ?=
T          ?= 30s
HELD       ?= 30m
FUZZTIME   ?= $(T)
RANDOM_FOR ?= 10m
BENCHFLAGS ?=
N          ?=
VERSION    ?=
SIZE       ?= 0.001
ONLY       ?=

# Without paths, clones share what is compiled, and so do vet, tests and the programs that tests build.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

# A test that hangs fails after this time.
TIMEOUT := 30m

# The linter is pinned in a separate module, so that its dependencies are not
# dependencies of Mailbox.
LINT := $(GO) tool -modfile=tools/go.mod golangci-lint

##@ Every day

.PHONY: run
run: ## The daemon on the embedded disk store; it prints the next commands
	$(GO) build -o bin/ ./cmd/mailboxd
	@exec bin/mailboxd --log-format text # without go run, which ends in an error after Ctrl-C

.PHONY: tour
tour: ## A tour of the library on the memory backend
	$(GO) run ./examples/tour

# Tests say how they run by the first call in them, of package internal/testing/volume.
# $(call marked,CALLS) lists the packages of tests that begin with one of the calls, and
# $(call pattern,CALLS) is a pattern of their names.
find_marked = find . -name '*_test.go' -not -path './.*' | xargs awk -v calls='$(1)' -v names=$(2) -f tools/marked.awk | sort
marked      = $$($(call find_marked,$(1),0))
pattern     = "$$($(call find_marked,$(1),1))"

# Packages whose tests start servers take longest, and mostly wait: they begin first, those
# with most such tests before the others, and more of them than there are processors run at
# a time.
STARTERS := 'mailbox/internal/testing/(redistest|pgtest|proctest|sqstest|dynamotest|browsertest)"'
waiting   = $$(grep -rlE --include='*_test.go' $(STARTERS) . | sed 's|/[^/]*$$||' | sort | uniq -c | sort -rn | awk '{ print $$2 }')

# A missing server fails the tests that need it, in all targets.
export MAILBOX_REQUIRE_SERVERS := 1

# Failures are printed again at the end, with their output.
REPORT := awk -f tools/report.awk
# Vet runs before the tests. They are linked without data for debuggers, which takes half the
# time; stack traces have their lines all the same.
TEST   := $(GO) test -vet=off -timeout $(TIMEOUT) -ldflags='-s -w'
# Many tests wait, so more of them run at a time than there are processors (docs/decisions/0078).
BESIDE := -p 4 -parallel 4
# Under the race detector.
RACE   := $(TEST) -race -exec "'$(CURDIR)/tools/racetest.sh'"
# Without it, and only the tests that do a part under it: others have done everything there.
FULL    = MAILBOX_REST=1 $(TEST) $(BESIDE) -v -run $(call pattern,Repeats|InFull) -skip $(call pattern,Alone|Measures)
# A pattern that matches no line.
NOTHING := '^$$.'
# The output lines of tests with figures that make test prints.
FIGURES := '[.]go:[0-9]+:|^---'

.PHONY: test
test: ## Everything a commit must pass; CI runs exactly this
	@$(MAKE) --no-print-directory --output-sync=target -j2 setup vet format-check # setup mostly waits
	@echo; echo "All packages under the race detector, repetitive tests in part:"
	@$(RACE) $(BESIDE) -skip $(call pattern,Alone|Measures) $(waiting) ./... 2>&1 | $(REPORT)
	@echo; echo "Repetitive tests, in full, without it:"
	@$(FULL) $(call marked,Repeats|InFull) 2>&1 | $(REPORT) -v show=$(NOTHING)
	@echo; echo "Tests that run alone, under the race detector:"
	@$(RACE) -p 1 -v -run $(call pattern,Alone) $(call marked,Alone) 2>&1 | $(REPORT) -v show=$(FIGURES)
	@echo; echo "Measurements, without it:"
	@$(TEST) -p 1 -v -run $(call pattern,Measures) $(call marked,Measures) 2>&1 | $(REPORT) -v show=$(FIGURES)
	@echo; echo "The memory backend, and the conformance cases it passed, by rule:"
	@$(FULL) ./membox 2>&1 | $(REPORT) -v test=TestConformance # go test has kept the output
	@echo; echo "Saboteurs, the rule each breaks, and whether the suite caught it:"
	@$(FULL) ./internal/testing/faulty 2>&1 | $(REPORT) -v test=TestEverySaboteurIsCaught # as above

.PHONY: soak
soak: ## Everything at full volume, which takes most of a day; then make race
	MAILBOX_VOLUME=soak $(GO) test -count=1 -timeout 0 -p 1 ./...
	cd server/internal/rpcapi/interop && $(GO) test -count=1 ./...
	$(MAKE) race

# Each script installs what is missing. Tests start and stop the servers, on free ports.
.PHONY: setup
setup: ## Install servers and clients for tests: Redis, PostgreSQL, dynalite for DynamoDB, fauxqs and clients for SQS, strace, pymacaroons, Prometheus, Chromium
	tools/redis.sh
	tools/dynalite.sh
	tools/fauxqs.sh
	tools/sqsclients.sh
	tools/witnesses.sh
	tools/prometheus.sh
	tools/postgres.sh
	tools/chromium.sh

.PHONY: setup-bench
setup-bench: ## Install the servers that the benchmarks compare with
	tools/redis.sh
	tools/fauxqs.sh
	tools/postgres.sh
	tools/beanstalkd.sh
	tools/rabbitmq.sh || true # the table names what is missing

.PHONY: check
check: test lint generate-check bench-test chart ## test, lint, generate-check, bench-test and chart: before a review

.PHONY: lint
lint: ## Run golangci-lint (the first time builds it: a few minutes)
	$(LINT) run ./...

# govulncheck needs vuln.go.dev, so this is not part of test.
.PHONY: vuln
vuln: ## Look for known vulnerabilities in code that Mailbox calls (needs the network)
	@$(GO) tool -modfile=tools/vuln.mod govulncheck ./... || { \
		code=$$?; [[ $$code == 3 ]] || echo "make vuln: govulncheck failed; without a way to https://vuln.go.dev set GOVULNDB to a copy of the database"; exit $$code; }

.PHONY: notices
notices: ## Write THIRD_PARTY_NOTICES: the licences of linked modules
	$(GO) run ./internal/notices > THIRD_PARTY_NOTICES.new
	mv THIRD_PARTY_NOTICES.new THIRD_PARTY_NOTICES

.PHONY: words
words: ## Lower the counts of retired words (docs/style.md) and print the words that reviewers look at
	$(GO) test ./internal/tidy -run '^TestRetiredWordsOnlyDecrease$$' -count=1 -lower
	$(GO) test ./internal/tidy -run '^TestReviewedWordsAreCounted$$' -count=1 -v

.PHONY: format
format: ## Format all Go code
	$(LINT) fmt ./...

.PHONY: format-check
format-check:
	@unformatted=$$(gofmt -l .); \
	if [[ -n "$$unformatted" ]]; then echo "not formatted, run make format:"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet:
	$(GO) vet ./...

##@ Occasionally

.PHONY: crash
crash: ## Power cuts on the disk backend: N images (1000000) of queues, and N of calls with reply slots
	MAILBOX_VOLUME=$(or $(N),1000000) $(GO) test -v -count=1 -timeout 0 -run '^(TestNoPowerCutLosesWhatWasAcknowledged|TestPowerCutLosesNoAnswer)$$' ./diskbox

.PHONY: failover
failover: ## Failovers, hangs and slot moves of a Redis Cluster under load: N of each (200)
	MAILBOX_VOLUME=$(or $(N),200) $(GO) test -race -v -count=1 -timeout 0 -run '^(TestFailover|TestSentinelFailover|TestHangWithoutReplicas|TestKilledProcesses)' ./redisbox

.PHONY: pg-failover
pg-failover: ## Crashes of a PostgreSQL primary under load, with promotion of its synchronous standby, and of an asynchronous one: N of each (100)
	MAILBOX_VOLUME=$(or $(N),100) $(GO) test -race -v -count=1 -timeout 0 -p 1 -run '^TestFailover' ./pgbox ./server

.PHONY: simulation
simulation: ## The daemon, its disk and its network with faults in virtual time: N simulations (10000)
	MAILBOX_VOLUME=$(or $(N),10000) $(GO) test -v -count=1 -timeout 0 -run '^TestDaemonKeepsItsPromises$$' ./server/internal/simulation

.PHONY: surfaces
surfaces: ## The suite through HTTP, gRPC, OAP/1 and SQS in front of disk and Redis, on the real clock
	MAILBOX_VOLUME=soak $(GO) test -count=1 -timeout 60m -p 1 -run 'Conformance|Loopback' ./server/internal/...
	cd server/internal/rpcapi/interop && $(GO) test -count=1 ./...

.PHONY: chaos
chaos: ## Workers on Redis, PostgreSQL and disk that fail, hang and are killed, for N seconds (60)
	MAILBOX_VOLUME=$(or $(N),60) $(GO) test -race -v -count=1 -timeout 0 ./internal/chaos

.PHONY: gates
gates: ## The gates of the daemon at length, with N kills (50)
	MAILBOX_VOLUME=$(or $(N),50) $(GO) test -v -count=1 -timeout 0 -skip '^(TestHostileTenantDoesNotHarmOthers|TestDaemonDoesNotGrowUnderLoad)$$' ./internal/gates

.PHONY: hostile
hostile: ## A tenant that attacks over every protocol for N seconds (300), beside one that works
	MAILBOX_VOLUME=$(or $(N),300) $(GO) test -v -count=1 -timeout 60m -run '^TestHostileTenantDoesNotHarmOthers$$' ./internal/gates

.PHONY: sqs-fifo
sqs-fifo: ## A FIFO queue with N messages (200000), 20 to a group, and 32 consumers, over the SQS protocol
	MAILBOX_VOLUME=$(or $(N),200000) $(GO) test -v -count=1 -timeout 60m -run '^TestLargeFIFOQueue' ./internal/sqsclients

.PHONY: forgery
forgery: ## Forged and mutated tokens: N of them (1000000)
	MAILBOX_VOLUME=$(or $(N),1000000) $(GO) test -v -count=1 -timeout 0 -run '^TestNoForgeryIsAccepted$$' ./internal/verify

.PHONY: kill
kill: ## Kill a process that uses the disk backend N times (1000)
	MAILBOX_VOLUME=$(or $(N),1000) $(GO) test -v -count=1 -timeout 0 -run '^TestKillingTheProcessLosesNothing$$' ./diskbox

.PHONY: race
race: ## All tests under the race detector, on one, two and four processors
	$(GO) test -race -timeout 60m -cpu 1,2,4 ./...

.PHONY: random
random: ## Random programs against the model for RANDOM_FOR (10m)
	MAILBOX_VOLUME=$(RANDOM_FOR) $(GO) test -v -count=1 -timeout 0 -run '^TestAgreesWithTheModel$$' ./membox

.PHONY: lab
lab: ## Everything that proves a promise, at SIZE (0.001; 1 takes days), ONLY what matches; then write docs/evidence.md
	$(GO) run ./internal/lab run -size $(SIZE) -only "$(ONLY)"
	$(GO) run ./internal/lab page

.PHONY: lab-bugs
lab-bugs: ## Seed each bug of internal/lab/bugs that has no result, and see which test catches it; then write docs/evidence.md
	$(GO) run ./internal/lab bugs -only "$(ONLY)"
	$(GO) run ./internal/lab page

.PHONY: fuzz
fuzz: ## Each fuzz target for T (30s)
	@found=0; \
	for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' "$$package" | sed -n '/^Fuzz/p'); do \
			found=1; echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
	done; \
	if [[ $$found == 0 ]]; then echo "there are no fuzz targets"; exit 1; fi

.PHONY: bench
bench: ## Mailbox beside other libraries, in one run (BENCHFLAGS="-rounds 5")
	cd bench && $(GO) run . $(BENCHFLAGS)

.PHONY: bench-daemon
bench-daemon: ## mailboxd beside other servers, W1 to W4 (BENCHFLAGS="-run W1 -peers redis -rounds 1")
	cd bench && $(GO) run . -suite daemon $(BENCHFLAGS)

.PHONY: bench-sqs
bench-sqs: ## mailboxd beside emulators of SQS, S1 and S2 (BENCHFLAGS="-run S1 -peers goaws -rounds 1")
	cd bench && $(GO) run . -suite sqs $(BENCHFLAGS)

.PHONY: bench-start
bench-start: ## The start of mailboxd for tests, and its memory, beside an emulator of SQS
	cd bench && $(GO) run . -suite start $(BENCHFLAGS)

.PHONY: bench-postgres
bench-postgres: ## pgbox beside River and a table with SKIP LOCKED: rates, and claims with a transaction held open for HELD (30m)
	cd bench && $(GO) run . -suite postgres -held $(HELD) $(BENCHFLAGS)

.PHONY: bench-fleet
bench-fleet: ## Daemons on one disk, on Redis Clusters and on PostgreSQL, and what each process takes of a processor
	cd bench && $(GO) run . -suite fleet $(BENCHFLAGS)

.PHONY: bench-test
bench-test: ## Run each Go benchmark once, and test the module bench
	$(GO) test -run '^$$' -bench . -benchtime 1x ./... 2>&1 | $(REPORT)
	cd bench && $(GO) vet . && $(GO) test .

.PHONY: bench-page
bench-page: ## Write docs/benchmarks.md from the figures in bench/results
	cd bench && $(GO) run . -page ../docs/benchmarks.md results/*.json
	cd bench && $(GO) run . -fleet ../docs/scaling.md results/fleet/fleet.json
	cd bench && $(GO) run . -rates ../docs/postgres.md results/postgres/rates.json

.PHONY: bench-chart
bench-chart: ## Draw docs/postgres-held.svg from the figures in bench/results/postgres
	cd bench && $(GO) run . -chart ../docs/postgres-held.svg results/postgres/held.json

# A quiet machine gives a better profile. Each benchmark weighs as much as it takes time.
PROFILED := ./server/internal/oapapi:Loopback ./server/internal/sqsapi:Life ./server/internal/rpcapi:RoundTrip

.PHONY: pgo
pgo: ## Record the profile with which images of mailboxd are compiled, for T a benchmark (30s)
	rm -rf .cache/pgo
	mkdir -p .cache/pgo
	@for profiled in $(PROFILED); do \
		name=$${profiled##*:}; \
		$(GO) test -trimpath -run '^$$' -bench "^Benchmark$$name\$$" -benchtime $(T) -timeout 0 -o .cache/pgo/$$name.test -cpuprofile .cache/pgo/$$name.prof $${profiled%:*}; \
	done
	$(GO) tool pprof -proto .cache/pgo/*.prof > cmd/mailboxd/mailboxd.pgo

.PHONY: release
release: ## Build archives, packages and images of VERSION into dist/VERSION (VERSION=v0.1.0)
	rm -rf dist/$(VERSION)
	cd tools/release && $(GO) build -o ../../bin/release .
	bin/release -source . -version "$(VERSION)" -out dist/$(VERSION)

# The second time from a copy, with a build cache of its own.
.PHONY: release-check
release-check: release ## The same twice, in two directories, and compare each byte (VERSION=v0.1.0)
	rm -rf .cache/release
	mkdir -p .cache/release/source
	git ls-files -z | xargs -0 cp --parents -t .cache/release/source
	GOCACHE=$(CURDIR)/.cache/release/cache bin/release -source .cache/release/source -version "$(VERSION)" -out .cache/release/dist
	diff -r dist/$(VERSION) .cache/release/dist
	rm -rf .cache/release
	@echo "two builds of $(VERSION) are equal"

.PHONY: site
site: ## Build the documentation site into dist/site; its folder is VERSION (next)
	cd tools/site && $(GO) build -o ../../bin/site .
	bin/site -source . -version "$(VERSION)" -out dist/site

.PHONY: chart
chart: ## Lint the Helm chart and compare what it renders (the first time builds Helm: a few minutes)
	MAILBOX_VOLUME=soak $(GO) test -count=1 -timeout 30m ./internal/chart

.PHONY: keda
keda: ## Run KEDA's scalers with the examples of deploy/keda (the first time builds them: some minutes)
	tools/keda.sh
	cd deploy/keda && $(GO) test -count=1 -timeout 30m .

.PHONY: generate
generate: ## Generate code again
	$(GO) generate ./...

# Compares the tree with itself, so that it also works with uncommitted changes.
.PHONY: generate-check
generate-check: ## Fail if generating changes anything
	@tree() { git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum; }; \
	before=$$(tree); $(GO) generate ./...; after=$$(tree); \
	if [[ "$$before" != "$$after" ]]; then \
		echo "generated code is out of date, run make generate and commit:"; \
		diff <(echo "$$before") <(echo "$$after") || true; exit 1; \
	fi

.PHONY: screenshots
screenshots: ## Take the pictures of docs/console.md, with Chromium
	tools/chromium.sh
	MAILBOX_SCREENSHOTS=$(CURDIR)/docs/console $(GO) test -count=1 -run '^TestPagesAreSoundInBrowser$$' ./server/internal/console

.PHONY: clean
clean: ## Remove the files that other targets made
	rm -rf bin dist .cache
	find . -path ./.git -prune -o -type f \( -name '*.test' -o -name '*.prof' \) -exec rm -f {} +
	$(GO) clean -testcache

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
