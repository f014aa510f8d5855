package server_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// Anyone who signs for this process signs ten proofs a second for one agent, whatever it
// asks for, and at once for the others; and not twice for one connection.
func TestSignaturesOfOneAgent(t *testing.T) {
	var signed [2]atomic.Int64 // of edge-1 and edge-2
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	byToken, err := server.Method{
		Name: identity.MethodJWT, Credentials: insecure.NewCredentials(), Authenticate: authenticate, Renew: peerOf,
		Prove: func(_ context.Context, to spiffeid.ID, n stream.Nonce) (string, error) {
			if to == edge2ID {
				signed[1].Add(1)
			} else {
				signed[0].Add(1)
			}
			return "proof for " + n.Audience(), nil
		},
	}.On(raw)
	if err != nil {
		t.Fatal(err)
	}
	h := newHub(t, nil, byToken)
	began := time.Now()
	c := h.dialAt(raw.Addr().String(), insecure.NewCredentials())
	const streams = 30
	nonces := make(chan stream.Nonce, streams)
	for i := range streams {
		nonces <- stream.Nonce(strings.Repeat(string(rune('0'+i)), stream.NonceBytes))
	}
	close(nonces)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for n := range nonces {
				s, _, err := c.open(token(edge1ID, time.Hour), n)
				if err != nil {
					t.Errorf("a call of the agent: %v", err)
					return
				}
				_ = s.CloseSend()
				_ = s.end()
			}
		})
	}
	other := h.dialAt(raw.Addr().String(), insecure.NewCredentials())
	for range 2 {
		s, w, err := other.openAs("edge-2", token(edge2ID, time.Hour), nonce)
		if err != nil || w.Proof != "proof for "+nonce.Audience() {
			t.Fatalf("another agent meanwhile: %+v, %v", w, err)
		}
		s.echoes(t)
	}
	calls.Wait()
	if got, most := signed[0].Load(), 10+int64(time.Since(began)/(time.Second/10))+1; got != streams || got > most {
		t.Errorf("%d proofs were signed for one agent in %s, want %d, and no more than %d in that time", got, time.Since(began), streams, most)
	}
	if got := signed[1].Load(); got != 1 {
		t.Errorf("%d proofs were signed for two calls of one connection", got)
	}
}
