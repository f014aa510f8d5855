package links

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
)

// Links that are busy and do not answer are asked all at once, and keep no one from being
// counted: ten of them take the second that one may take.
func TestBusyLinksDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, err := linkmetrics.New(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		l := New(Config{Sessions: sessions.New("here")})
		var names []identity.AgentName
		for i := range 10 {
			name, err := identity.ParseAgentName(fmt.Sprint("busy-", i))
			if err != nil {
				t.Fatal(err)
			}
			rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Managed, Agent: name, Namespace: "argocd"}}}
			m, err := mirror.New(mirror.Config{Rules: rules, Store: &kube.Store{}, Metrics: metrics, Tracer: noop.Tracer{}, Log: zerolog.Nop()})
			if err != nil {
				t.Fatal(err)
			}
			// It never runs, as one that is busy for long.
			l.running[name] = &runningLink{mirror: m, rules: rules, budget: budget.NewPeer(name.String(), budget.DefaultLimits(), nil, time.Now())}
			l.cfg.Sessions.Open(server.Session{Agent: stream.Agent{Name: name}})
			names = append(names, name)
		}
		began := time.Now()
		l.countAll(t.Context(), names)
		if took := time.Since(began); took > time.Second {
			t.Errorf("ten links that do not answer take %s, want a second", took)
		}
	})
}
