package sim

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

// steps is how many things happen in one history.
const steps = 120

// TestHistories runs random histories for SIM_DURATION (default 20s), each from
// its own seed, and repeats one alone when SIM_SEED names it.
func TestHistories(t *testing.T) {
	if text := os.Getenv("SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SIM_SEED: %v", err)
		}
		run(t, seed)
		return
	}
	duration := 20 * time.Second
	if text := os.Getenv("SIM_DURATION"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SIM_DURATION: %v", err)
		}
	}
	first := uint64(time.Now().UnixNano())
	deadline := time.Now().Add(duration)
	histories := 0
	for seed := first; time.Now().Before(deadline) && !t.Failed(); seed++ {
		run(t, seed)
		histories++
	}
	t.Logf("%d histories of %d steps", histories, steps)
}

func run(t *testing.T, seed uint64) {
	t.Helper()
	mode := stream.Managed
	if seed%2 == 1 {
		mode = stream.Autonomous
	}
	ok := t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(context.Background(), seed, mode)
			for step := range steps {
				w.act(step)
			}
			w.faulty.Store(false)
			// I8: both sides agree within 60 seconds of the last fault, and back-offs of
			// at most 15 s after it.
			w.pause(75 * time.Second)
			w.check(t)
			w.end()
			w.wait.Wait()
			for _, s := range w.sides {
				<-s.done
			}
		})
	})
	if !ok {
		t.Logf("repeat it with SIM_SEED=%d", seed)
	}
}

// check compares what the stores hold with what the invariants say.
func (w *World) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.broken {
		t.Error(b)
	}
	for uid, name := range w.removed {
		if !w.intended[uid] {
			t.Errorf("I4: the workloads of %s (%s) were removed and nobody asked for it", name, uid)
		}
	}
	for id, n := range w.ran {
		if id != "" && n > 1 {
			t.Errorf("I5: command %s took effect %d times", id, n)
			for _, r := range w.runs {
				if strings.HasPrefix(r, id) {
					t.Log(r)
				}
			}
		}
	}
	theirs := w.view(w.other())
	ours := w.view(w.owner())
	for name, app := range w.view(w.hub()) {
		// The end of a command that the spoke refused is shown on the hub alone.
		state, _ := app["status"]["operationState"].(map[string]any)
		message, _ := state["message"].(string)
		if !strings.HasPrefix(message, "not run by agent ") {
			continue
		}
		for _, side := range []map[string]map[string]map[string]any{ours, theirs} {
			if status := side[name]["status"]; status != nil {
				delete(status, "operationState")
			}
			if side[name] != nil && len(side[name]["status"]) == 0 {
				side[name]["status"] = nil
			}
		}
	}
	for name, app := range theirs {
		// Keys that the other side's people added are theirs; all of ours must be there.
		if mine, ok := ours[name]; ok {
			for key := range app["labels"] {
				if _, owned := mine["labels"][key]; !owned {
					delete(app["labels"], key)
				}
			}
		}
	}
	if diff := cmp.Diff(ours, theirs); diff != "" {
		t.Errorf("I8: both sides differ (-owner +other):\n%s", diff)
		w.dump(t)
	}
	for _, s := range w.sides {
		stats, err := s.mirror.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !stats.Agreed {
			t.Errorf("I8: the %s does not know of agreement", s.which)
		}
	}
}

// view is what must be equal on both sides.
func (w *World) view(s *side) map[string]map[string]map[string]any {
	view := map[string]map[string]map[string]any{}
	for _, o := range s.server.List(stream.Application, s.namespace()) {
		app := parse(o)
		spec := app["spec"].(map[string]any)
		delete(spec, "destination") // rewritten
		if spec["project"] == agentName+"-default" {
			spec["project"] = "default"
		}
		meta := app["metadata"].(map[string]any)
		uid := meta["uid"]
		if s == w.other() {
			uid = meta["annotations"].(map[string]any)["argocd.argoproj.io/source-uid"]
		}
		status, _ := app["status"].(map[string]any)
		if len(status) == 0 {
			status = nil
		}
		labels, _ := meta["labels"].(map[string]any)
		if labels == nil {
			labels = map[string]any{}
		}
		view[o.Key.Name] = map[string]map[string]any{
			"spec": spec, "labels": labels, "status": status,
			"state": {"uid": uid, "deleting": meta["deletionTimestamp"] != nil, "operation": app["operation"]},
		}
	}
	return view
}

// dump logs what both sides hold, for a failed history.
func (w *World) dump(t *testing.T) {
	for _, s := range w.sides {
		for _, o := range s.server.List(stream.Application, s.namespace()) {
			t.Logf("%s %s", s.which, o.Raw)
		}
		stats, err := s.mirror.Stats(t.Context())
		t.Logf("%s %+v %v", s.which, stats, err)
	}
}
