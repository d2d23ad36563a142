# The commands of this repository; `make` alone lists them. They need Go, git, make
# and gcc (for the race detector).

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules --warn-undefined-variables
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Settings of the caller: make fuzz T=5m
GO         ?= go
T          ?= 30s
FUZZTIME   ?= $(T)
RANDOM_FOR ?= 10m
BENCHFLAGS ?=
N          ?=

# A test that hangs fails after this time.
TIMEOUT := 12m

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

# Packages with many repetitions in virtual time: the suite on each surface of the daemon
# and each embedded backend, random programs, saboteurs. The race detector makes them ten
# times slower. So they run twice: with it without the tests that SKIPPED names and with
# fewer repetitions, and without it in full. The suite of the surfaces on the real clock,
# in front of disk and Redis, takes a quarter of an hour: make surfaces.
SURFACES := /server/internal/(httpapi|oapapi|rpcapi|sqsapi)$$
REPEATED := $(SURFACES)|/server/internal/broker$$|/diskbox$$|/membox$$|/driver/drivertest(/internal/faulty)?$$

# Tests with a single goroutine that damages a disk bit by bit or fills it, tests with
# thousands of messages where a hundred cover the same code, and saboteurs of rules without
# goroutines.
SKIPPED := FlippedBit|^Test(DamagedFilesAreRefused|CheckFindsEvery|HeadOfALongQueue|DueRecordsDoNot|SweepKeeps|HistoriesShowEvery)
SKIPPED := $(SKIPPED)|^TestConformance$$/./^(64_goroutines|thousands_of_messages|many_keys_come|many_messages_move)
SKIPPED := $(SKIPPED)|^TestEverySaboteurIsCaught$$/\((ACK|CNT|DLQ|DUP|ORD|RET|SND|SVC)-

# These take longest, and mostly wait: they begin first, and more of them than there are
# processors run at a time.
LONGEST := ./redisbox ./internal/sqsclients ./internal/chaos ./sqsbox/dynamoreply ./internal/gates ./sqsbox

# Failures are printed again at the end, with their output.
REPORT := awk -f tools/report.awk
# Vet runs before the tests.
TEST   := $(GO) test -vet=off -timeout $(TIMEOUT)

.PHONY: test
test: format-check vet servers ## Everything a commit must pass; CI runs exactly this
	@echo; echo "All packages that do not repeat much, under the race detector:"
	@others=$$($(GO) list ./... | grep -vE '$(REPEATED)'); $(TEST) -race -p 3 -parallel 4 -skip $(STORMS) $(LONGEST) $$others 2>&1 | $(REPORT)
	@echo; echo "Those that do, under the race detector:"
	@repeated=$$($(GO) list ./... | grep -E '$(REPEATED)'); $(TEST) -race -short -skip '$(SKIPPED)' $$repeated 2>&1 | $(REPORT)
	@echo; echo "And in full, without it:"
	@full=$$($(GO) list ./... | grep -E '$(REPEATED)' | grep -vE '/(membox|faulty)$$'); $(TEST) -short -skip $(CRASHES) $$full 2>&1 | $(REPORT)
	@$(TEST) -run 'Alloc|IdleQueuesCost' . ./capability ./envelope ./internal/sqsclients 2>&1 | $(REPORT) # the race detector allocates too
	@$(TEST) -run HostileTenant ./internal/gates 2>&1 | $(REPORT) # it skips under the race detector, whose memory is not the daemon's
	@echo; echo "Requests and answers: storms of callers under the race detector, and ten thousand addresses without it:"
	@$(TEST) -race -v -run $(STORMS) -skip $(ADDRESSES) ./redisbox ./sqsbox/dynamoreply ./reply 2>&1 | $(REPORT) -v show=$(FIGURES)
	@$(TEST) -v -run $(ADDRESSES) ./redisbox ./reply 2>&1 | $(REPORT) -v show=$(FIGURES)
	@echo; echo "Power cuts on the disk backend, without the race detector, which is slow:"
	@MAILBOX_CRASH_IMAGES=$(or $(N),10000) $(TEST) -v -run $(CRASHES) ./diskbox 2>&1 | $(REPORT) -v show=$(FIGURES)
	@echo; echo "The memory backend, and the conformance cases it passes, by rule:"
	@$(TEST) -v ./membox 2>&1 | $(REPORT) -v test=TestConformance
	@echo; echo "Saboteurs, the rule each breaks, and whether the suite caught it:"
	@$(TEST) -v ./driver/drivertest/internal/faulty 2>&1 | $(REPORT) -v test=TestEverySaboteurIsCaught

.PHONY: check
check: test lint generate-check bench-test ## test, lint, generate-check and bench-test: before a review

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

# A single test uses all the images that it is given.
CRASHES := '^TestNoPowerCutLosesWhatWasAcknowledged$$'

# Test patterns of the reply load tests, and the output lines that make test prints.
ADDRESSES := 'ManyReplyAddresses'
STORMS    := 'TestEveryCaller|ManyReplyAddresses'
FIGURES   := '[.]go:[0-9]+:|^---'

##@ Occasionally

.PHONY: crash
crash: ## Power cuts on the disk backend: N images (1000000)
	MAILBOX_CRASH_IMAGES=$(or $(N),1000000) $(GO) test -v -count=1 -timeout 0 -run $(CRASHES) ./diskbox

# Each script installs what is missing. Tests start and stop the servers, on free ports.
.PHONY: servers
servers: ## Install servers and clients for tests: Redis, dynalite for DynamoDB, fauxqs and clients for SQS, strace, pymacaroons, Prometheus
	tools/redis.sh
	tools/dynalite.sh
	tools/fauxqs.sh
	tools/sqsclients.sh
	tools/witnesses.sh
	tools/prometheus.sh

.PHONY: failover
failover: ## Failovers, hangs and slot moves of a Redis Cluster under load: N of each (200)
	tools/redis.sh
	MAILBOX_FAILOVERS=$(or $(N),200) $(GO) test -race -v -count=1 -timeout 0 -run '^(TestFailover|TestSentinelFailover|TestHangWithoutReplicas|TestKilledProcesses)' ./redisbox

.PHONY: surfaces
surfaces: servers ## The suite through HTTP, gRPC, OAP/1 and SQS in front of disk and Redis, on the real clock
	packages=$$($(GO) list ./... | grep -E '$(SURFACES)'); $(GO) test -count=1 -timeout 60m -p 1 $$packages
	cd server/internal/rpcapi/interop && $(GO) test -count=1 ./...

.PHONY: chaos
chaos: ## Workers on Redis and disk that fail, hang and are killed, for N seconds (60)
	tools/redis.sh
	MAILBOX_CHAOS_SECONDS=$(or $(N),60) $(GO) test -race -v -count=1 -timeout 0 ./internal/chaos

.PHONY: gates
gates: ## The gates of the daemon at length, with N kills (50)
	tools/redis.sh
	tools/witnesses.sh
	MAILBOX_GATES=$(or $(N),50) $(GO) test -v -count=1 -timeout 60m ./internal/gates

.PHONY: hostile
hostile: ## A tenant that attacks over every protocol for N seconds (300), beside one that works
	MAILBOX_HOSTILE_SECONDS=$(or $(N),300) $(GO) test -v -count=1 -timeout 60m -run '^TestHostileTenantDoesNotHarmOthers$$' ./internal/gates

.PHONY: sqs-fifo
sqs-fifo: ## A FIFO queue with N messages (200000), 20 to a group, and 32 consumers, over the SQS protocol
	MAILBOX_SQS_FIFO=$(or $(N),200000) $(GO) test -v -count=1 -timeout 60m -run '^TestLargeFIFOQueue' ./internal/sqsclients

.PHONY: forgery
forgery: ## Forged and mutated tokens: N of them (1000000)
	MAILBOX_FORGERIES=$(or $(N),1000000) $(GO) test -v -count=1 -timeout 0 -run '^TestNoForgeryIsAccepted$$' ./capability

.PHONY: kill
kill: ## Kill a process that uses the disk backend N times (1000)
	MAILBOX_KILLS=$(or $(N),1000) $(GO) test -v -count=1 -timeout 0 -run '^TestKillingTheProcessLosesNothing$$' ./diskbox

.PHONY: race
race: ## All tests under the race detector, on one, two and four processors
	$(GO) test -race -timeout 60m -cpu 1,2,4 ./...

.PHONY: random
random: ## Random programs against the model for RANDOM_FOR (10m)
	MAILBOX_RANDOM_FOR=$(RANDOM_FOR) $(GO) test -v -count=1 -timeout 0 -run '^TestAgreesWithTheModel$$' ./membox

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
	tools/redis.sh
	tools/postgres.sh
	tools/beanstalkd.sh
	tools/rabbitmq.sh || true
	tools/fauxqs.sh
	cd bench && $(GO) run . $(BENCHFLAGS)

.PHONY: bench-daemon
bench-daemon: ## mailboxd beside other servers, W1 to W4 (BENCHFLAGS="-run W1 -peers redis -rounds 1")
	tools/redis.sh
	@for peer in beanstalkd postgres rabbitmq; do tools/$$peer.sh || true; done # the table names what is missing
	cd bench && $(GO) run . -suite daemon $(BENCHFLAGS)

.PHONY: bench-sqs
bench-sqs: ## mailboxd beside emulators of SQS, S1 and S2 (BENCHFLAGS="-run S1 -peers goaws -rounds 1")
	tools/fauxqs.sh || true
	cd bench && $(GO) run . -suite sqs $(BENCHFLAGS)

.PHONY: bench-test
bench-test: ## Run each Go benchmark once, and test the module bench
	$(GO) test -run '^$$' -bench . -benchtime 1x ./... 2>&1 | $(REPORT)
	cd bench && $(GO) vet . && $(GO) test .

.PHONY: bench-page
bench-page: ## Write docs/benchmarks.md from the figures in bench/results
	cd bench && $(GO) run . -page ../docs/benchmarks.md results/*.json

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

.PHONY: clean
clean: ## Remove the files that other targets made
	rm -rf bin .cache
	find . -path ./.git -prune -o -type f \( -name '*.test' -o -name '*.prof' \) -exec rm -f {} +
	$(GO) clean -testcache

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
