//go:build linux

package identity

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestStrangersHoldNoConnections has callers with an SVID that no one registered call a
// principal without a pause, each as soon as it is refused, more of them than the
// listener takes connections. An agent connects all the same.
func TestStrangersHoldNoConnections(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	const namespace, connections, callers = "crowded", 10, 30
	if err := w.Hub.EnsureNamespace(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	principal := w.MappedPrincipal(t, namespace, harness.Settings{
		"stream.max_connections": connections, "mapping.by": "destination", "mapping.namespaces": []string{"none-*"},
	})
	certificate := env.HostileLeaf(t, w, env.SPIFFEID("stranger"))
	var refused atomic.Int64
	crowd, leave := context.WithCancel(context.WithoutCancel(ctx))
	var callersDone sync.WaitGroup
	t.Cleanup(func() { leave(); callersDone.Wait() })
	for range callers {
		cc, err := grpc.NewClient(principal.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, // it is the attacker
		})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		callersDone.Go(func() {
			for crowd.Err() == nil {
				s, err := streampb.NewStreamClient(cc).Connect(crowd, grpc.WaitForReady(true))
				if err == nil {
					_, err = s.Recv()
				}
				if code := status.Code(err); code == codes.PermissionDenied || code == codes.Unauthenticated {
					refused.Add(1)
				}
			}
		})
	}
	more := func() {
		t.Helper()
		from := refused.Load()
		env.Eventually(t, "strangers call and are refused", func() error {
			if n := refused.Load() - from; n < callers {
				return fmt.Errorf("%d calls were", n)
			}
			return nil
		})
	}
	more()
	w.MappedAgent(t, namespace, "among-strangers", principal, harness.Settings{"mapping.namespaces": []string{"none-1"}})
	more() // while it is connected
	if err := env.FieldIs(ctx, w.Hub.Resource(env.Agents, namespace), "among-strangers", true, "status", "connected"); err != nil {
		t.Error(err)
	}
}
