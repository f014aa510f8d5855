# The images of Argomesh where Docker or Podman builds them; `make images` makes the
# same ones without. One program each:
#
#   docker build --build-arg PROGRAM=principal --build-arg GO=golang:1.26@sha256:... \
#     --build-arg BASE=gcr.io/distroless/static-debian12:nonroot@sha256:... --tag argomesh/principal .
#
# and the same for agent and agentctl. What a tag names may change, so both images that it
# builds on are given by their digests, which you look up and keep; without them it fails.
ARG GO
ARG BASE

FROM --platform=$BUILDPLATFORM ${GO} AS build
ARG GO
ARG BASE
RUN for image in "$GO" "$BASE"; do \
      case "$image" in *@sha256:*) ;; *) echo "GO and BASE: give $image by its digest" >&2; exit 1;; esac; \
    done
ARG PROGRAM
ARG VERSION=""
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
COPY api/go.mod api/go.sum api/
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build-cache \
    test -n "$PROGRAM" && \
    GOCACHE=/go/build-cache go run ./test/tools/manifests cmd/agentctl/internal/manifests/archives && \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOCACHE=/go/build-cache \
    go build -trimpath -o /out/argomesh \
    -ldflags "-s -w${VERSION:+ -X github.com/argomesh/argomesh/cmd/internal/buildinfo.version=$VERSION}" \
    "./cmd/$PROGRAM"

FROM ${BASE}
COPY --from=build /out/argomesh /argomesh
USER 65532:65532
ENTRYPOINT ["/argomesh"]
