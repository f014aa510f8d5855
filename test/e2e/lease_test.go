//go:build linux

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/test/harness"
)

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// Two agents of one spoke: one works and the other stands by, whatever becomes of
// the first.
func TestOneAgentWorksAtATime(t *testing.T) {
	t.Parallel()
	w, ctx := theWorldAlone(t), t.Context()
	first := w.agents[managed]
	eventually(t, "the first agent works", func() error { return active(ctx, first, true) })
	second, err := w.h.StartAgent(ctx, harness.AgentConfig{
		Name: managed, Process: "standby", Mode: "managed", ControlPlane: w.edge1, WorkloadAPI: w.identities[managed],
		PrincipalAddress: w.principal.Address, PrincipalIDs: []string{principalID},
		Settings: harness.Settings{"log.level": "debug"},
	})
	if err != nil {
		t.Fatal(err) // it is ready though it stands by
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := second.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	// Their logs are read from here on. What ran before is not this test's.
	read := map[*harness.Process]int64{w.principal.Process: size(t, w.principal.Process), first.Process: 0, second.Process: 0}
	eventually(t, "the second agent stands by", func() error { return active(ctx, second, false) })

	hub, spoke := w.onHub(managed), w.onSpoke(managed)
	create(t, hub, w.idle("lease", managed, managed))
	reaches := func(revision string) {
		t.Helper()
		patch(t, hub, "lease", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": revision}}})
		eventually(t, revision+" is on the spoke", func() error {
			return field(ctx, spoke, "lease", revision, "spec", "source", "targetRevision")
		})
	}
	reaches("by-the-first")

	// Stopped in order, the first hands over at once.
	ours, before := holder(t, w), size(t, first.Process)
	began := time.Now()
	if err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	// A spoke that is too slow to take the Lease back is not waited for.
	if now := holder(t, w); now == ours && !slices.ContainsFunc(lines(t, first.Process, before), func(line map[string]any) bool {
		return strings.HasPrefix(fmt.Sprint(line["message"]), "lease could not be given back")
	}) {
		t.Errorf("%s holds the Lease after it has stopped", now)
	}
	eventually(t, "the second agent works", func() error { return active(ctx, second, true) })
	t.Logf("stopped in order: %s without an agent", time.Since(began))
	reaches("by-the-second")
	if err := first.Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	// It comes back to a Lease that another has.
	eventually(t, "the first agent stands by", func() error { return active(ctx, first, false) })

	// Killed, the second leaves its Lease to expire.
	began = time.Now()
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first agent works again", func() error { return active(ctx, first, true) })
	t.Logf("killed: %s without an agent", time.Since(began))
	reaches("by-the-first-again")

	// Killed and back at once, it need not wait: the Lease is its own, which it renews.
	began = time.Now()
	if err := killAndStart(ctx, first.Process); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first agent works after a restart", func() error { return active(ctx, first, true) })
	t.Logf("killed and started: %s without an agent", time.Since(began))
	reaches("by-the-first-after-all")
	if holder(t, w) == "" {
		t.Error("nobody holds the Lease")
	}
	checkTurns(t, w, read, first, second)
	if err := hub.Delete(ctx, "lease", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// holder returns who holds the Lease of the agents, empty when nobody does.
func holder(t *testing.T, w *world) string {
	t.Helper()
	lease := get(t, w.edge1.Resource(leases, harness.ArgoCDNamespace), "argomesh-agent")
	name, _, err := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// active is a check of what an agent says of itself, and that only one that works
// has a connection.
func active(ctx context.Context, a *harness.Agent, want bool) error {
	is, err := gauge(ctx, a.AdminAddress, "argomesh_agent_active")
	if err != nil {
		return err
	}
	up, err := gauge(ctx, a.AdminAddress, "argomesh_stream_up")
	if err != nil {
		return err
	}
	if (is == "1") != want || (up == "1") != want {
		return fmt.Errorf("%s: active %s, connections up %s", a.Name(), is, up)
	}
	return nil
}

// gauge reads one metric without labels.
func gauge(ctx context.Context, address, name string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("no metric %s at %s", name, address)
}

// checkTurns holds, by what all three logged, that the principal never had
// connections of both agents at a time.
func checkTurns(t *testing.T, w *world, from map[*harness.Process]int64, agents ...*harness.Agent) {
	t.Helper()
	owner := map[string]string{} // process by connection
	for _, a := range agents {
		for _, line := range lines(t, a.Process, from[a.Process]) {
			if line["message"] == "connected to the principal" {
				owner[fmt.Sprint(line["connection"])] = a.Name()
			}
		}
	}
	open := map[string]string{} // process by connection
	turns, last := 0, ""
	for _, line := range lines(t, w.principal.Process, from[w.principal.Process]) {
		connection := fmt.Sprint(line["connection"])
		process, known := owner[connection]
		switch {
		case line["agent"] != managed || !known:
		case line["message"] == "agent disconnected":
			delete(open, connection)
		case line["message"] == "agent connected":
			for other, by := range open {
				if by != process {
					t.Errorf("connection %s of %s began before %s of %s had ended", connection, process, other, by)
				}
			}
			open[connection] = process
			if process != last {
				turns, last = turns+1, process
			}
		}
	}
	if turns < 2 {
		t.Errorf("the principal saw %d turns, want the second agent and the first again: the check shows nothing", turns)
	}
}

func size(t *testing.T, p *harness.Process) int64 {
	t.Helper()
	info, err := os.Stat(p.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// lines returns what a process logged from an offset on.
func lines(t *testing.T, p *harness.Process, from int64) []map[string]any {
	t.Helper()
	file, err := os.Open(p.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // it is only read
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var line map[string]any
		if json.Unmarshal(scanner.Bytes(), &line) == nil { // the harness writes lines of its own
			all = append(all, line)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
