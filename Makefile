# Everything a person or CI runs. `make help` lists it.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

# VERSION is what the binaries report. Without a release tag it is empty, and they
# report what the Go toolchain recorded.
VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null)
LDFLAGS := -s -w$(if $(VERSION), -X github.com/argomesh/argomesh/cmd/internal/buildinfo.version=$(VERSION))
BINARIES := ./cmd/principal ./cmd/agent ./cmd/agentctl ./test/devworkload ./test/hostile

# What was compiled in one clone is there for the next one. `make lint` runs go vet's
# analyzers; go test, with -race and without, would look through every dependency again.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -vet=off)

# FUZZTIME is how long each fuzz target runs.
FUZZTIME ?= 5s

# DURATION is how long the simulation runs histories of random seeds; empty means the same
# seeds each time.
DURATION ?=

# Packages with a stage of their own, so that the unit stage leaves them out.
# test/argocd links argo-cd's types, which take minutes to build with -race;
# test/tree asks go list and git, of which go test's cache knows nothing.
STAGED := test/(argocd|e2e|sim|tree)
# SLOW are those that take longest and mostly wait: they begin first.
SLOW   := ./test/harness ./stream/tunnel ./stream/client ./proxies/redis ./backends/mirror
UNITS   = $$(go list $(SLOW) ./... | grep -vE '/$(STAGED)(/|$$)')

# SUBJECTS is how many packages of end-to-end tests run at a time: all. Their tests mostly wait,
# and take turns where they keep servers busy (test/e2e/environments).
SUBJECTS := 16
# ALONE are tests beside which no other runs, since they measure what a siege costs others.
ALONE := AtFullSpeed$$

# tests_with finds the packages whose tests contain a pattern. The module in api has none.
tests_with = $$(grep -rlE --include='*_test.go' $(1) . | grep -v '^./api/' | xargs -r -n1 dirname | sort -u)
# tool is the place of a program that `make tools` built.
tool = $$(go run ./test/tools -list $(1) | sed -n 's/^$(1)  *//p')
# stage runs a command between two lines that say what it is and how long it took.
stage = @started=$$SECONDS; echo "==> $(1)"; $(2); echo "==> $(1): done in $$((SECONDS - started)) s"

##@ Build

.PHONY: build
build: manifests ## build the binaries into bin
	@mkdir -p bin
	go build -ldflags '$(LDFLAGS)' -o bin/ $(BINARIES)

# MANIFESTS is where agentctl has what it brings of others, embedded when it is built.
MANIFESTS := cmd/agentctl/internal/manifests/archives

.PHONY: manifests
manifests: ## take the manifests of Argo CD and spire-controller-manager, which agentctl embeds, out of their pinned modules
	@go run ./test/tools/manifests $(MANIFESTS)

# IMAGES is where `make images` leaves the images, PLATFORMS for which machines they are
# (linux/amd64; empty means what .ko.yaml says), BASE what they are built on. Empty means a
# base that is made here (test/baseimage), so that no registry is asked. Another is named by
# its digest. values-principal.yaml and values-agent.yaml beside the images are values of the
# charts that name ours by their digests. REGISTRY is a registry and folder to push them to as well,
# such as registry.example/argomesh, under the tag that the charts ask for; empty for none.
REGISTRY  ?=
IMAGES    ?= bin/images
PLATFORMS ?=
BASE      ?=

.PHONY: images
images: manifests ## build the images of principal, agent and agentctl as OCI layouts into IMAGES (bin/images), without Docker or a registry, and values of the charts with their digests; REGISTRY=registry.example/argomesh pushes them, too; BASE is another base image, with its digest, PLATFORMS as linux/amd64
	@case '$(BASE)' in ''|*@sha256:*) ;; *) echo "BASE: what the tag of $(BASE) names may change: name the image as REPOSITORY@sha256:..." >&2; exit 1;; esac
	@go run ./test/tools ko >/dev/null
	@mkdir -p bin
	@go build -o bin/baseimage ./test/baseimage
	$(call stage,images,\
		mkdir -p '$(IMAGES)'; \
		declare -A digest; \
		for program in principal agent agentctl; do \
			rm -rf '$(IMAGES)'/$$program; \
			image=$$(VERSION='$(VERSION)' KO_DOCKER_REPO='$(or $(REGISTRY),argomesh)' $(if $(BASE),KO_DEFAULTBASEIMAGE='$(BASE)',bin/baseimage) "$(call tool,ko)" build --push=$(if $(REGISTRY),true,false) \
				$(if $(REGISTRY),--tags="$$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\} *$$/\1/p' charts/argomesh-agent/Chart.yaml)") \
				$(if $(PLATFORMS),--platform='$(PLATFORMS)') --base-import-paths --sbom=none --oci-layout-path='$(IMAGES)'/$$program ./cmd/$$program); \
			echo "$$image"; digest[$$program]=$${image##*@}; \
		done; \
		printf 'image: {digest: "%s"}\nenvoy: {bootstrapImage: {digest: "%s"}}\n' "$${digest[principal]}" "$${digest[agentctl]}" >'$(IMAGES)'/values-principal.yaml; \
		printf 'image: {digest: "%s"}\n' "$${digest[agent]}" >'$(IMAGES)'/values-agent.yaml)

.PHONY: tools
tools: ## build the pinned servers, developer tools and earlier programs of ours that are missing
	$(call stage,tools,go run ./test/tools servers developer earlier)

# UI is whether the demo has Argo CD's web interface; empty for none.
UI ?= 1

# servers is what the demo needs of tools.
.PHONY: servers
servers:
	@go run ./test/tools $(if $(UI),-optional ui) servers

.PHONY: meshes
meshes: ## build Istio's and SPIRE's programs, if they are missing, which only e2e-matrix needs
	$(call stage,meshes,go run ./test/tools meshes)

.PHONY: releases
releases: ## build Argo CD of other releases, if they are missing, which only e2e-matrix needs
	$(call stage,releases,go run ./test/tools releases)

.PHONY: ui
ui: ## build argocd-server with Argo CD's web interface, if it is missing, by Node.js and npm; ARGO_UI_ARCHIVE=argo-ui.tar.gz is the source of argo-ui (test/tools/ui/argo-ui.json) where its address cannot be had
	$(call stage,web interface,go run ./test/tools ui)

.PHONY: generate
generate: ## generate code, custom resource definitions, roles and schemas of the charts, docs/reference
	@go run ./test/tools developer >/dev/null
	export PATH="$$(dirname "$(call tool,protoc-gen-go)"):$$PATH"; go generate ./...; cd api; go generate ./...

.PHONY: docs
docs: ## build the documentation as a site into bin/site; a warning, such as a broken link, fails
	$(call stage,documentation,\
		if ! cmp -s mkdocs-requirements.txt bin/mkdocs/requirements.txt; then \
			rm -rf bin/mkdocs; mkdir -p bin; python3 -m venv bin/mkdocs; \
			bin/mkdocs/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement mkdocs-requirements.txt; \
			cp mkdocs-requirements.txt bin/mkdocs/requirements.txt; \
		fi; \
		NO_MKDOCS_2_WARNING=1 bin/mkdocs/bin/mkdocs build --strict --quiet)

.PHONY: golden
golden: ## rewrite golden files from what the code does now; read the diff like code
	go test $(call tests_with,'argomesh/test/golden"') -run Golden -update

.PHONY: clean
clean: ## remove what build leaves in the checkout; the cache of tools stays
	rm -rf bin

##@ Check

.PHONY: check
check: lint generated tree vulnerabilities unit ## what needs no server: lint, generated code, tree rules, known vulnerabilities, unit tests with -race

.PHONY: test
test: FUZZ_FLAGS = -once
test: tools lint generated tree vulnerabilities unit sim fuzz e2e ## everything: check, simulation, fuzzing, end-to-end tests

.PHONY: lint
lint: ## gofmt and golangci-lint, which runs go vet's analyzers too
	@go run ./test/tools golangci-lint >/dev/null
	$(call stage,lint,\
		unformatted=$$(git ls-files --cached --others --exclude-standard '*.go' | xargs gofmt -l); \
		if [ -n "$$unformatted" ]; then echo "not formatted (gofmt -w):" $$unformatted; exit 1; fi; \
		lint="$(call tool,golangci-lint)"; "$$lint" run ./...; \
		cd api; "$$lint" run --config ../.golangci.yml ./...)

.PHONY: generated
generated: ## fail when generated code is out of date, and bring it up to date
	$(call stage,generated code,\
		sums() { git ls-files --cached --others --exclude-standard -- '*.pb.go' '*zz_generated*' 'charts/*/files' 'charts/*/values.schema.json' docs/reference | xargs sha256sum; }; \
		before=$$(sums); \
		$(MAKE) --no-print-directory --silent generate; \
		if [ "$$before" != "$$(sums)" ]; then echo "generated code was out of date and is new now: commit it"; exit 1; fi)

.PHONY: tree
tree: ## rules about the tree: imports, package comments, what is tracked
	$(call stage,tree rules,go test -count=1 ./test/tree/...)

.PHONY: vulnerabilities
vulnerabilities: ## govulncheck of our programs: fails by a known vulnerability that they call; says so where the database (GOVULNDB) cannot be reached
	@go run ./test/tools govulncheck >/dev/null
	$(call stage,vulnerabilities,go run ./test/vulnerabilities "$(call tool,govulncheck)" ./cmd/...)

.PHONY: unit
unit: ## unit tests, with the race detector; eight packages at a time, since many tests wait
	$(call stage,unit tests,\
		go test -race -p 8 -timeout 30m $(UNITS); \
		(cd api; go test -race ./...); \
		$(if $(wildcard test/argocd),go test ./test/argocd/...,true))

.PHONY: sim
sim: ## simulation of hub and spokes with faults, no server; with DURATION=10m histories of random seeds for that long
	$(call stage,simulation,SIM_DURATION='$(DURATION)' go test -timeout 0 $(if $(DURATION),-count=1 -v) ./test/sim/...)

.PHONY: sim-scale
sim-scale: ## 10,000 simulated agents with 100 applications each, and what they take
	SIM_SCALE=10000 go test -count=1 -timeout 0 -v -run TestScale ./test/sim

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (5s); make test leaves out those that were fuzzed as they are
	$(call stage,fuzzing,go run ./test/fuzz $(FUZZ_FLAGS) -time $(FUZZTIME))

.PHONY: e2e
e2e: tools build ## end-to-end tests on real servers, by subject (test/e2e/README.md)
	@go build -o bin/environments ./test/e2e/environments
	$(call stage,end-to-end tests,bin/environments bash -c '\
		go test -count=1 -timeout 80m -run "$(ALONE)" ./test/e2e/bounds; first=$$?; \
		go test -count=1 -timeout 80m -skip "$(ALONE)" -p $(SUBJECTS) ./test/e2e/... && exit $$first')

.PHONY: soak
soak: tools build ## the end-to-end tests and those tagged soak, of ten minutes and more; live access for SOAK_DURATION (1h)
	@go build -o bin/environments ./test/e2e/environments
	bin/environments go test -count=1 -timeout 4h -p 1 -tags soak -v ./test/e2e/...

.PHONY: e2e-matrix
e2e-matrix: tools meshes releases build ## the end-to-end tests and those tagged matrix: a real Istio, a real SPIRE, a hub that deploys itself, ApplicationSets, controllers and functions of other releases of Argo CD
	@go build -o bin/environments ./test/e2e/environments
	bin/environments go test -count=1 -timeout 2h -p $(SUBJECTS) -tags matrix -v ./test/e2e/...
	go test -count=1 -timeout 1h -tags matrix -v -run '^TestReleases$$' ./test/argocd

.PHONY: e2e-cluster
e2e-cluster: tools build ## both charts as real pods, with kubelet and containerd of this machine, as root; UPDATE=1 writes the result into docs/cluster.md, KEEP=1 leaves all up until Ctrl-C
	@go run ./test/tools nodes ko helm spire >/dev/null
	go test -count=1 -timeout 10m -tags cluster ./test/cluster/policy
	$(if $(KEEP),KEEP=1) go test -count=1 -timeout $(if $(KEEP),0,30m) -tags cluster -v ./test/cluster $(if $(UPDATE),-args -update)

# UPDATE=1 writes the times into docs/ui.md, PICTURES=docs/pictures the pages as pictures.
.PHONY: e2e-ui
e2e-ui: servers build ui ## a headless Chromium walks through Argo CD's web interface on both agents of the demo; UPDATE=1 writes the times into docs/ui.md, PICTURES=folder pictures of the pages
	@go build -o bin/demo ./test/demo
	$(call stage,tour of the web interface,go test -count=1 -timeout 30m -tags ui -v ./test/ui -args $(if $(UPDATE),-update) $(if $(PICTURES),-pictures '$(abspath $(PICTURES))'))

.PHONY: bench
bench: tools build ## the targets of docs/design/README.md, BENCH=T2,T6 for some of them, and every Go benchmark
	@echo "==> targets"
	@go build -o bin/bench ./test/bench
	bin/bench $(if $(BENCH),-run $(BENCH)) $(BENCH_FLAGS)
	@$(if $(BENCH),,echo "==> Go benchmarks")
	$(if $(BENCH),,go test -run '^$$' -bench . -benchmem $(call tests_with,'^func Benchmark'))

##@ Demo

.PHONY: demo
demo: servers build ## hub, two spokes and Argo CD with its web interface on this machine, until Ctrl-C or demo-down; UI= leaves the interface out, which Node.js and npm build once (make ui)
	@go build -o bin/demo ./test/demo
	@bin/demo $(if $(UI),-ui)

.PHONY: demo-down
demo-down: ## stop a running demo
	@go run ./test/demo down

##@ Help

.PHONY: help
help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
