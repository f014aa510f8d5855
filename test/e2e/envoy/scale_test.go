//go:build linux

package envoy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/kit"
)

// With thousands of agents one more is one small message, is served at once, and
// delays no one; and an Envoy that comes back to another server is sent nothing.
func TestEnvoyWithManyAgents(t *testing.T) {
	t.Parallel()
	const (
		agents = 5_000
		// most bounds what Envoy takes for them, in bytes of its heap.
		most = 192 << 20
		// oneMore bounds the message for one more, in bytes.
		oneMore = 1 << 10
	)
	f := newFront(t, nil)
	empty := f.heap(t)
	begin := time.Now()
	f.change(t, func(p *mesh.ResourceProxy) {
		for i := range agents {
			p.Agents[kit.Agent(t, fmt.Sprint("edge-", i))] = mesh.Agent{}
		}
	})
	set := time.Since(begin)
	last := fmt.Sprint("edge-", agents-1)
	f.becomes(t, last, http.StatusOK)
	took, sent, full := time.Since(begin), f.sent(t, "route"), f.heap(t)
	t.Logf("%d agents: rendered in %s, served after %s, %.0f bytes sent, %.1f MiB of heap more than %.1f MiB",
		agents, set, took, sent, (full-empty)/(1<<20), empty/(1<<20))
	if full-empty > most {
		t.Errorf("Envoy takes %.0f bytes for %d agents, want at most %d", full-empty, agents, most)
	}

	f.callEach(t, agents)
	called := f.heap(t)
	t.Logf("each agent called once: %.1f MiB of heap more", (called-full)/(1<<20))
	if called-empty > most {
		t.Errorf("Envoy takes %.0f bytes for %d agents that were called, want at most %d", called-empty, agents, most)
	}

	watch := f.open(t, "/agents/a/watch", "")
	begin = time.Now()
	f.change(t, func(p *mesh.ResourceProxy) { p.Agents[kit.Agent(t, "one-more")] = mesh.Agent{} })
	set = time.Since(begin)
	f.becomes(t, "one-more", http.StatusOK)
	took = time.Since(begin)
	more := f.sent(t, "route") - sent
	t.Logf("one more: set in %s, served after %s, %.0f bytes sent", set, took, more)
	if more > oneMore || more == 0 {
		t.Errorf("one more agent is a message of %.0f bytes, want at most %d", more, oneMore)
	}
	watch.check(t, "an agent more")

	// 50 requests one after the other, each on its own connection.
	begin = time.Now()
	for range 50 {
		if status, body := f.get(t, "/agents/"+last+"/version", f.signer.token(t, last)); status != http.StatusOK {
			t.Fatalf("answer is %d %s", status, body)
		}
	}
	t.Logf("a request with TLS handshake takes %s", time.Since(begin)/50)

	f.stopXDS()
	f.startXDS(t)
	f.set(t)
	f.acknowledged(t, f.signer.id) // Envoy has said what it has
	f.change(t, func(p *mesh.ResourceProxy) { delete(p.Agents, kit.Agent(t, "one-more")) })
	f.becomes(t, "one-more", http.StatusNotFound)
	if again := f.sent(t, "route"); again > oneMore {
		t.Errorf("a new server sends %.0f bytes of routes to an Envoy that has them, want at most %d", again, oneMore)
	}
	begin = time.Now()
	if err := f.envoy.Restart(t.Context()); err != nil { // a sidecar that crashed
		t.Fatal(err)
	}
	f.becomes(t, last, http.StatusOK)
	f.acknowledged(t, f.signer.id)
	t.Logf("Envoy is back after %s", time.Since(begin))
	watch = f.open(t, "/agents/a/watch", "")
	f.change(t, func(p *mesh.ResourceProxy) { p.Agents = map[identity.AgentName]mesh.Agent{kit.Agent(t, "a"): {}} })
	f.becomes(t, last, http.StatusNotFound)
	watch.check(t, "the others are gone")
}

// callEach calls the agents edge-0 to edge-n once: each has a rate of its own from then
// on, and its token is remembered.
func (f *front) callEach(t *testing.T, n int) {
	t.Helper()
	tokens := make([]string, n)
	for i := range tokens {
		tokens[i] = f.signer.token(t, fmt.Sprint("edge-", i))
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 16,
		DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx) },
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Timeout: env.Patience, Transport: transport}
	env.Each(t, n, func(ctx context.Context, i int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s/agents/edge-%d/version", f.address, i), http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+tokens[i])
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("edge-%d answers %s", i, res.Status)
		}
		return res.Body.Close()
	})
}

// heap is what Envoy has allocated, in bytes.
func (f *front) heap(t *testing.T) float64 {
	t.Helper()
	body, err := harness.EnvoyAdmin(t.Context(), f.envoy.AdminAddress, "/memory")
	if err != nil {
		t.Fatal(err)
	}
	var memory struct {
		Allocated float64 `json:"allocated,string"`
	}
	if err := json.Unmarshal(body, &memory); err != nil || memory.Allocated == 0 {
		t.Fatalf("memory: %v: %s", err, body)
	}
	return memory.Allocated
}

// sent is what the server has sent of a type, in bytes.
func (f *front) sent(t *testing.T, typeName string) float64 {
	t.Helper()
	return gathered(t, f.metrics, "argomesh_xds_sent_bytes_total", "type", typeName)
}

// gathered returns a counter or gauge with a label.
func gathered(t *testing.T, from prometheus.Gatherer, name, label, value string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					return m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return 0
}
