#!/usr/bin/env bash
# Makes the .pb.go files from the .proto files.
# protoc-gen-go and protoc-gen-go-grpc on the PATH come from `make generate`.
set -euo pipefail
cd "$(dirname "$0")/.."
# From the folder above, since the name of a file, with its folder, is global to a
# process: a plain types.proto could meet another one.
go run github.com/argomesh/argomesh/test/tools/protoc -I . \
  --go_out=. --go_opt=paths=source_relative \
  --go-grpc_out=. --go-grpc_opt=paths=source_relative \
  spirepb/types.proto spirepb/entry.proto spirepb/bundle.proto spirepb/trustdomain.proto
