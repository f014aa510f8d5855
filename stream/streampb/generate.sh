#!/usr/bin/env bash
# Makes the *.pb.go from stream.proto and tunnel.proto.
# protoc-gen-go and protoc-gen-go-grpc on the PATH come from `make generate`.
set -euo pipefail
cd "$(dirname "$0")"
cloudevents=$(go list -m -f '{{.Dir}}' github.com/cloudevents/sdk-go/binding/format/protobuf/v2)/pb
ce=github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb
go run github.com/argomesh/argomesh/test/tools/protoc -I . -I "$cloudevents" \
  --go_out=. --go_opt=paths=source_relative --go_opt=Mcloudevent.proto=$ce \
  --go-grpc_out=. --go-grpc_opt=paths=source_relative --go-grpc_opt=Mcloudevent.proto=$ce \
  stream.proto tunnel.proto
