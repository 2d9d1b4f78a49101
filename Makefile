# coordsvc: everything a contributor or CI runs. `make` alone lists it.
#
# A machine needs Go and make. Tools are built from internal/tools/go.mod into bin/;
# the browser for the end-to-end tests is installed by scripts/install-test-deps.

SHELL       := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN   := bin
TOOLS := internal/tools
GO    ?= go

# A version for `coordsvc version`; outside a git checkout it says so.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
LDFLAGS := -X main.version=$(VERSION)

# Flags of every ordinary test run.
TEST_FLAGS  ?= -race -shuffle=on
TIMEOUT     ?= 10m
FUZZ_SHORT  ?= 5s
FUZZ_LONG   ?= 10m
BENCH_TIME  ?= 2s
BENCH_TURNS ?= 5x

# Packages with tests on real engines; each starts its own, one package at a time, for the sake of the clocks.
INTEGRATION = ./internal/webhook/... ./internal/consulstore/... ./test/engine/...

# Generated files, relative to the root; `make verify` compares exactly these.
GENERATED = internal/api/apigen $(wildcard internal/web/views/*_templ.go)

##@ Run

.PHONY: run
run: build ## Build and serve on http://127.0.0.1:8080, no settings needed
	$(BIN)/coordsvc serve

.PHONY: demo
demo: build ## Serve with a simulated fleet that drains, crashes, comes back and takes over
	$(BIN)/coordsvc demo

.PHONY: build
build: ## Build the service into bin/
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/coordsvc ./cmd/coordsvc

##@ Test

.PHONY: test
test: lint verify unit fuzz-short integration e2e ## All that must pass before a merge

.PHONY: unit
unit: ## Unit tests, with the race detector, in random order
	$(GO) test $(TEST_FLAGS) -timeout $(TIMEOUT) ./...
	$(GO) -C $(TOOLS) test -shuffle=on ./...

.PHONY: e2e
e2e: test-deps ## End-to-end tests: the real binary, a real browser
	$(GO) test $(TEST_FLAGS) -timeout $(TIMEOUT) -tags e2e ./test/e2e/...

.PHONY: integration
integration: test-deps ## What needs more than Go: a real Consul and RabbitMQ, the webhook guide's receivers in Python and Node
	$(GO) test $(TEST_FLAGS) -timeout $(TIMEOUT) -p 1 -tags integration $(INTEGRATION)

.PHONY: fuzz-short
fuzz-short: ## Every fuzz target for a few seconds
	scripts/fuzz $(FUZZ_SHORT)

.PHONY: fuzz
fuzz: ## All fuzz targets, ten minutes in total
	scripts/fuzz --total $(FUZZ_LONG)

.PHONY: crash
crash: ## kill -9 at 200 random instants under load; nothing acknowledged may be lost
	COORDSVC_KILLS=200 $(GO) test -timeout 30m -count=1 -v -run Kill -tags e2e ./internal/standalone/ ./test/e2e/...

.PHONY: bench
bench: ## Heartbeats/s against a bare net/http server, bytes a peer, time from timeout to webhook
	$(GO) test -tags load -run '^$$' -bench . -benchtime $(BENCH_TURNS) -timeout 15m ./test/load

.PHONY: bench-parts
bench-parts: ## The parts alone: the coordinator, the store, the entrance
	$(GO) test -run '^$$' -bench . -benchtime $(BENCH_TIME) -benchmem ./internal/...

##@ Keep clean

.PHONY: lint
lint: $(BIN)/golangci-lint $(BIN)/openapilint ## go vet, staticcheck, golangci-lint, shell scripts, the OpenAPI document
	$(BIN)/golangci-lint run ./...
	$(BIN)/golangci-lint run --build-tags e2e,integration,load ./test/... $(INTEGRATION)
	cd $(TOOLS) && $(CURDIR)/$(BIN)/golangci-lint run ./...
	$(BIN)/openapilint openapi.yaml
	for script in .ci/run $$(find scripts -type f); do bash -n "$$script"; done

.PHONY: fmt
fmt: $(BIN)/golangci-lint $(BIN)/templ ## Format Go and templ files
	$(BIN)/golangci-lint fmt ./...
	$(BIN)/templ fmt internal/web/views

.PHONY: generate
generate: $(BIN)/oapi-codegen $(BIN)/templ ## Generate HTTP types and routes from openapi.yaml, Go from *.templ
	scripts/generate

.PHONY: verify
verify: $(BIN)/oapi-codegen $(BIN)/templ ## Fail when a generated file is not what `make generate` writes
	scripts/verify-generated

.PHONY: clean
clean: ## Remove what was built (tools included) and the test cache
	rm -rf $(BIN)
	$(GO) clean -testcache

##@ Tools

.PHONY: tools
tools: $(BIN)/golangci-lint $(BIN)/oapi-codegen $(BIN)/templ $(BIN)/openapilint ## Build the pinned tools into bin/

.PHONY: test-deps
test-deps: ## Install what the end-to-end tests need from the system (a browser); quick when it is there
	scripts/install-test-deps

$(BIN)/golangci-lint: PKG := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/oapi-codegen: PKG := github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
$(BIN)/templ: PKG := github.com/a-h/templ/cmd/templ
$(BIN)/openapilint: PKG := ./openapilint
$(BIN)/openapilint: $(filter-out %_test.go,$(wildcard $(TOOLS)/openapilint/*.go))

$(BIN)/golangci-lint $(BIN)/oapi-codegen $(BIN)/templ $(BIN)/openapilint: $(TOOLS)/go.mod $(TOOLS)/go.sum
	@mkdir -p $(BIN)
	@echo "building $@ (once; golangci-lint takes about two minutes)"
	@cd $(TOOLS) && $(GO) build -o $(CURDIR)/$@ $(PKG)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*##"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9_-]+:.*##/ {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
