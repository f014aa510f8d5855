//go:build linux

package bounds

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// share is what a pod of the agent's chart has of its node.
type share struct {
	memory string // GOMEMLIMIT, without which Go lets the heap grow to twice of what is in use
	nice   int    // what it leaves of the processors to an API server
}

// ofAPIServer is what kubeadm's kube-apiserver requests of the processors: a node that has too few
// shares them by requests.
const ofAPIServer = "250m"

// agentShare is that of the agent's chart, as processes have it that are in no pods: each level of
// nice is a fifth less of the processors (sched(7)).
func agentShare(t *testing.T) share {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(charts.Dir(t, "argomesh-agent"), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		GoMemoryLimit string                      `json:"goMemoryLimit"`
		Resources     corev1.ResourceRequirements `json:"resources"`
	}
	if err := yaml.Unmarshal(file, &values); err != nil || values.GoMemoryLimit == "" || values.Resources.Requests.Cpu().IsZero() {
		t.Fatalf("the agent's chart has no goMemoryLimit, or requests no processor: %v", err)
	}
	other := resource.MustParse(ofAPIServer)
	times := other.AsApproximateFloat64() / values.Resources.Requests.Cpu().AsApproximateFloat64()
	return share{memory: values.GoMemoryLimit, nice: int(math.Round(math.Log(times) / math.Log(1.25)))}
}

// TestHostilePrincipalAtFullSpeed has anyone who holds the principal's identity do everything
// that the wire allows to an agent of each mode, one after the other, beside what people do
// on that spoke. No other test runs at that time.
func TestHostilePrincipalAtFullSpeed(t *testing.T) {
	hostilePrincipalAt(t, shortSiege)
}

func hostilePrincipalAt(t *testing.T, s siege) {
	t.Helper()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver", "redis-cli")
	ctx := t.Context()
	h := harnesstest.Alone(t)
	w := env.NewBare(h)
	var err error
	if w.Spoke, err = env.StartBareControlPlane(ctx, h, "spoke", nil); err != nil {
		t.Fatal(err)
	}
	redis, err := h.StartRedis(ctx, "redis")
	if err != nil {
		t.Fatal(err)
	}
	api, err := w.Identify(ctx, env.PrincipalID)
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("a", 32<<20) // of which the agent holds nothing
	if err := env.RedisClient(t, redis.Address, 3).Set(ctx, "app|resources-tree|large|1.8.3.gz", large, 0).Err(); err != nil {
		t.Fatal(err)
	}
	people := newPeople(t, w.Spoke, 10)
	s.calm, s.attack = s.calm*3/4, s.attack/2 // each mode has a half of the attack, and enough without
	for _, mode := range []string{"managed", "autonomous"} {
		t.Run(mode, func(t *testing.T) {
			hostilePrincipalTo(t, s, spokeAlone{Bare: w, redis: redis, api: api, people: people}, mode)
		})
	}
}

// spokeAlone is a spoke without a hub.
type spokeAlone struct {
	*env.Bare
	redis  *harness.Redis
	api    *harness.WorkloadAPI // of whoever holds the principal's identity
	people *people
}

// hostilePrincipalTo attacks one agent of a mode.
func hostilePrincipalTo(t *testing.T, s siege, w spokeAlone, mode string) {
	t.Helper()
	ctx := t.Context()
	address, err := w.Harness.Address()
	if err != nil {
		t.Fatal(err)
	}
	name := "edge-" + mode
	if err := w.Spoke.EnsureNamespace(ctx, name); err != nil {
		t.Fatal(err)
	}
	if mode == "autonomous" {
		for i := range 4 {
			env.Create(t, w.Spoke.Resource(harness.Applications, name), (&env.BareAgent{Env: w.Bare, Name: name, Mode: mode}).Application(fmt.Sprint("own-", i)))
		}
	}
	identity, err := w.Identify(ctx, env.SPIFFEID(name))
	if err != nil {
		t.Fatal(err)
	}
	pod := agentShare(t)
	a, err := w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: name, Mode: mode, ControlPlane: w.Spoke, WorkloadAPI: identity, PrincipalAddress: address,
		PrincipalIDs: []string{env.PrincipalID}, Redis: w.redis,
		Settings: harness.Settings{"namespace": name, "access.enabled": true, "access.writes": true, "access.exec": true, "redis_proxy.enabled": true},
		Env:      []string{"GOMEMLIMIT=" + pod.memory}, Nice: pod.nice,
	})
	if err != nil {
		t.Fatal(err)
	}
	start := inUse(t, w.Spoke)
	calm := w.people.changes(t, s.calm)
	quiet := inUse(t, w.Spoke) - start

	before, since := inUse(t, w.Spoke), time.Now()
	etcd := watchGrowth(t, w.Spoke)
	attacker := &hostile{name: "principal-" + mode, h: w.Harness, args: []string{
		"principal", "--socket", w.api.Socket, "--listen", address, "--mode", mode,
	}}
	startAll(t, attacker)
	begin := time.Now()
	worked := processors(t, a.Process, w.Spoke.Server)
	attacking := processors(t, attacker.process)
	during := w.people.changes(t, s.attack)
	worked(time.Since(begin))
	attacking(time.Since(begin))
	untilAllMade(t, attacker)
	attacker.stop(t)
	took := time.Since(since)
	bound(t, etcd.most(t)-before, 1, took, float64(quiet)/s.calm.Seconds())
	resident(t, a.Process, agentResident)
	s.compare(t, calm, during)
	if err := a.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// people change objects of their own on a spoke at a steady pace.
type people struct {
	spoke *harness.ControlPlane
	names []string
}

func newPeople(t *testing.T, spoke *harness.ControlPlane, n int) *people {
	t.Helper()
	if err := spoke.EnsureNamespace(t.Context(), "people"); err != nil {
		t.Fatal(err)
	}
	p := &people{spoke: spoke}
	for i := range n {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("of-", i)},
		}}
		if _, err := spoke.Resource(env.ConfigMaps, "people").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p.names = append(p.names, o.GetName())
	}
	return p
}

// changes has people change what they have, for a time, and returns how long the API server
// took for each, sorted, from when they wanted it.
func (p *people) changes(t *testing.T, during time.Duration) []time.Duration {
	t.Helper()
	over, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	where := p.spoke.Resource(env.ConfigMaps, "people")
	env.AtOnce(t, len(p.names), len(p.names), func(ctx context.Context, i int) error {
		// Each at a time of its own: at one time, what keeps the API server busy for a moment would
		// count as often as there are people.
		turn := time.NewTimer(time.Duration(i) * honestEvery / time.Duration(len(p.names)))
		defer turn.Stop()
		select {
		case <-over.Done():
			return nil
		case <-turn.C:
		}
		tick := time.NewTicker(honestEvery)
		defer tick.Stop()
		for {
			select {
			case <-over.Done():
				return nil
			case at := <-tick.C:
				if err := env.MergePatch(ctx, where, p.names[i], map[string]any{"data": map[string]any{"at": at.String()}}); err != nil {
					return err
				}
				mu.Lock()
				took = append(took, time.Since(at))
				mu.Unlock()
			}
		}
	})
	slices.Sort(took)
	enough(t, took)
	return took
}
