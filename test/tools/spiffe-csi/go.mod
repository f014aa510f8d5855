// Pins SPIFFE's CSI driver, which mounts the Workload API in the test of real pods.
module github.com/argomesh/argomesh/test/tools/spiffe-csi

go 1.26.3

tool github.com/spiffe/spiffe-csi/cmd/spiffe-csi-driver

require (
	github.com/container-storage-interface/spec v1.9.0 // indirect
	github.com/go-logr/logr v1.4.1 // indirect
	github.com/go-logr/zapr v1.3.0 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/spiffe/spiffe-csi v0.2.6 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.0 // indirect
	golang.org/x/net v0.21.0 // indirect
	golang.org/x/sys v0.19.0 // indirect
	golang.org/x/text v0.14.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240227224415-6ceb2ff114de // indirect
	google.golang.org/grpc v1.63.2 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)
