package workload_test

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream/protolimit"
	"github.com/argomesh/argomesh/test/heap"
)

// raw sends bytes as they are, and reads nothing.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }

// answering is a Workload API that answers each call with those bytes, and returns its
// socket.
func answering(t *testing.T, answer []byte) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}))
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
	return "unix://" + path
}

// An answer of the Workload API that would decode to hundreds of megabytes is refused
// before, and told like any other that cannot be read.
func TestHeapOfWorkloadReplies(t *testing.T) {
	const longest, most = 4<<20 - 64, 64 << 20 // what gRPC takes, and what one message may
	for what, answer := range map[string][]byte{
		"empty SVIDs":    bytes.Repeat([]byte{0x0a, 0}, longest/2),
		"revoked":        bytes.Repeat([]byte{0x12, 0}, longest/2),
		"empty bundles":  bytes.Repeat([]byte{0x1a, 0}, longest/2),
		"unlike bundles": bundles(longest),
	} {
		t.Run(what, func(t *testing.T) {
			socket := answering(t, answer)
			if took := heap.Of(func() {
				s := run(t, workload.Config{Socket: socket})
				s.log.Wait(t, "error", protolimit.ErrTooLarge.Error())
				if s.Ready() == nil {
					t.Error("it is ready")
				}
			}); took > most {
				t.Errorf("%d bytes take %d of heap", len(answer), took)
			}
		})
	}
}

// bundles are empty ones of so many trust domains as fit.
func bundles(size int) []byte {
	var b []byte
	for i := 0; len(b)+7 < size; i++ {
		b = append(b, 0x1a, 5, 0x0a, 3, byte(i)&0x7f, byte(i>>7)&0x7f, byte(i>>14)&0x7f)
	}
	return b
}
