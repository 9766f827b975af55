# Needs: Go (the version in go.mod), a C compiler for the race detector, tmux, and npm.
# npm fetches the conformance suite, the clients and servers of others, and the
# Node.js 22 they run under (all pinned in internal/conformance/package-lock.json
# and internal/interop/package-lock.json); no Node.js of yours is used on Linux.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
GO          ?= go
FUZZTIME    ?= 10s

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
CONFORMANCE := ./internal/conformance
INTEROP     := ./internal/interop

.PHONY: help test needs build fmt vet staticcheck race simulate power conformance interop short bench crash vuln vuln-if-reachable fuzz demo

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

test: needs build fmt vet staticcheck race simulate power conformance interop vuln-if-reachable ## everything: what CI runs
	@echo 'make test: all passed'

needs: ## name what this machine lacks
	@lacks=''; \
	command -v $(GO) >/dev/null || lacks+=$$'\n  Go: https://go.dev/dl'; \
	command -v "$${CC:-gcc}" >/dev/null || lacks+=$$'\n  a C compiler, for the race detector: apt-get install gcc libc6-dev'; \
	command -v npm >/dev/null || lacks+=$$'\n  npm, for the conformance suite and the clients of others: apt-get install npm'; \
	command -v tmux >/dev/null || lacks+=$$'\n  tmux, for the forms on a terminal: apt-get install tmux'; \
	if [ -n "$$lacks" ]; then echo "make test needs:$$lacks" >&2; exit 1; fi

build: ## compile everything
	$(GO) build ./...

fmt: ## fail on files that gofmt would change
	@changed=$$(gofmt -l .); \
	if [ -n "$$changed" ]; then printf 'not as gofmt writes it:\n%s\n' "$$changed" >&2; exit 1; fi

vet: ## go vet
	$(GO) vet ./...

staticcheck: ## honnef.co/go/tools
	$(GO) run $(STATICCHECK) ./...

race: ## the Go tests under the race detector, without the conformance suite and the clients of others
	$(GO) test -race -timeout 20m $$($(GO) list ./... | grep -vE '/internal/(conformance|interop)$$')

# The race detector makes these two many times slower and has little to see in
# them: 'race' has a short form of each.
simulate: ## 5000 simulated histories, held against the promises
	$(GO) test -timeout 20m ./internal/sim -histories 5000

power: ## the power cut at every operation of a history, under SQLite
	TALLYSTICK_POWER=all $(GO) test -timeout 20m -run Power ./store/sqlite

# Never from the test cache: it cannot see that the server it starts has changed.
conformance: ## the official MCP conformance suite against our fixtures
	$(GO) test -race -count=1 -timeout 20m $(CONFORMANCE)

interop: ## our server with clients that others wrote, and their servers (docs/interop.md)
	$(GO) test -race -count=1 -timeout 10m $(INTEROP)

short: ## the Go tests alone, quickly
	$(GO) test -short ./...

bench: ## what it costs, as a table: about ten minutes on a quiet machine (docs/performance.md)
	$(GO) run ./bench

crash: ## 300 SIGKILLs of a server under load: some minutes (docs/testing.md)
	$(GO) run ./internal/crashtest

vuln: ## known vulnerabilities; needs the internet (vuln.go.dev)
	$(GO) run $(GOVULNCHECK) ./...

# A vulnerability fails the build; a database that cannot be reached does not,
# as that says nothing about the code. Run 'make vuln' where it can be reached.
vuln-if-reachable:
	@report=$$(mktemp); trap 'rm -f "$$report"' EXIT; \
	if $(GO) run $(GOVULNCHECK) ./... >"$$report" 2>&1; then cat "$$report"; \
	elif grep -q 'govulncheck: fetching vulnerabilities' "$$report"; then \
		printf '%s\n' '******************************************************************' \
			'** NOT CHECKED for known vulnerabilities: vuln.go.dev cannot be **' \
			"** reached from here. Run 'make vuln' on a machine where it can. **" \
			'******************************************************************' >&2; \
	else cat "$$report" >&2; exit 1; fi

fuzz: ## each fuzz target for FUZZTIME (10s)
	@for package in $$($(GO) list ./...); do \
		listed=$$($(GO) test -list '^Fuzz' "$$package"); \
		for target in $$(grep '^Fuzz' <<<"$$listed" || true); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$package"; \
		done; \
	done

demo: ## the refund desk, walked through without questions
	$(GO) run ./cmd/tallystick demo --yes
