package wire_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/wire"
)

// A principal that has an agent decode all the time does so in turns, so that it takes no
// more than half of the spoke's processors: for small messages and for large ones.
func TestClientDecodesInTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for name, bytes := range map[string]int{"small": 64, "large": stream.MaxSmallBytes + 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peer, err := identity.ParseAgentName("edge-1")
				if err != nil {
					t.Fatal(err)
				}
				q, err := quota.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				q.Spend(peer, time.Minute)
				other := q.Compute(peer) // of a processor, which is all that a peer has of two
				received := received{padded(nil, bytes)}
				done := make(chan error, 1)
				go func() {
					m := wire.Message{Into: &streampb.Frame{}, Most: stream.MaxFrameBytes, Peer: peer}
					done <- wire.ReceiveInto(t.Context(), received, &m, q)
				}()
				synctest.Wait()
				select {
				case err := <-done:
					t.Fatalf("it is decoded, without a turn: %v", err)
				default:
				}
				other.End()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
