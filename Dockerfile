# The images of Argomesh where Docker or Podman builds them; `make images` makes the
# same ones without. One program each:
#
#   docker build --build-arg PROGRAM=principal --tag argomesh/principal .
#   docker build --build-arg PROGRAM=agent --tag argomesh/agent .
#   docker build --build-arg PROGRAM=agentctl --tag argomesh/agentctl .

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG PROGRAM
ARG VERSION=""
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build-cache \
    test -n "$PROGRAM" && \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOCACHE=/go/build-cache \
    go build -trimpath -o /out/argomesh \
    -ldflags "-s -w${VERSION:+ -X github.com/argomesh/argomesh/cmd/internal/buildinfo.version=$VERSION}" \
    "./cmd/$PROGRAM"

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/argomesh /argomesh
USER 65532:65532
ENTRYPOINT ["/argomesh"]
