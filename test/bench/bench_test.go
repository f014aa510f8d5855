//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"github.com/argomesh/argomesh/test/harness"
)

func TestChoose(t *testing.T) {
	for list, want := range map[string]string{"": "T1 T2 T3 T4 T5 T6 T7 T8 agentctl growth fleet destinations", "t6, T2": "T6 T2", "Growth": "growth"} {
		chosen, err := choose(list)
		if err != nil {
			t.Errorf("choose(%q): %v", list, err)
		}
		got := make([]string, 0, len(chosen))
		for _, e := range chosen {
			got = append(got, e.id)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("choose(%q) = %v, want %s", list, got, want)
		}
	}
	if _, err := choose("T2,T99"); err == nil || !strings.Contains(err.Error(), "T99") {
		t.Errorf("choose() of a scenario that does not exist: %v", err)
	}
}

func TestParseFlags(t *testing.T) {
	if _, err := parseFlags([]string{"T2"}, io.Discard); err == nil {
		t.Error("an argument without a flag is ignored")
	}
	got, err := parseFlags([]string{"-run", "T2", "-json", "f"}, io.Discard)
	if err != nil || got != (options{run: "T2", json: "f", agents: fleetDefault}) {
		t.Errorf("parseFlags() = %+v, %v", got, err)
	}
}

func TestFleetSizes(t *testing.T) {
	got, err := fleetSizes("20, 50,200")
	if diff := cmp.Diff([]int{20, 50, 200}, got); err != nil || diff != "" {
		t.Errorf("fleetSizes() = %v, %v", got, err)
	}
	if _, err := fleetSizes(fleetDefault); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "20,", "50,20", "20,20", "0", "-1", "ten", "10000"} {
		if sizes, err := fleetSizes(bad); err == nil {
			t.Errorf("fleetSizes(%q) = %v", bad, sizes)
		}
	}
	if got := spelled([]int{20}) + "; " + spelled([]int{20, 50, 100}); got != "20; 20, 50 and 100" {
		t.Errorf("spelled() = %s", got)
	}
}

// What goes on may take as long as it does; what stands still ends.
func TestMoving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		b := &bench{progress: &said, scenario: "x"}
		var n atomic.Int64
		count := func() int { return int(n.Load()) }
		if err := b.moving(t.Context(), "goes on", 100, count, func(ctx context.Context) error {
			for range 100 {
				if err := idle(ctx, stallTime/2); err != nil {
					return err
				}
				n.Add(1)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if !strings.Contains(said.String(), "goes on: 50 of 100") {
			t.Errorf("it said %q", said.String())
		}
		begun := time.Now()
		err := b.moving(t.Context(), "stuck", 200, count, func(ctx context.Context) error { return idle(ctx, 24*time.Hour) })
		if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), "stuck stands still at 100 of 200") || took > stallTime+tellInterval {
			t.Errorf("what stood still ended with %v after %s", err, took)
		}
		failed := errors.New("failed")
		if err := b.moving(t.Context(), "fails", 1, count, func(context.Context) error { return failed }); !errors.Is(err, failed) || err.Error() != "failed" {
			t.Errorf("a failure is told as %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.moving(ctx, "stopped", 1, count, func(ctx context.Context) error { return ctx.Err() }); !errors.Is(err, context.Canceled) {
			t.Errorf("a stop is told as %v", err)
		}
	})
}

func TestPersistently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		b := &bench{progress: &said}
		calls := 0
		if err := b.persistently(t.Context(), func(context.Context) error {
			if calls++; calls < 3 {
				return errors.New("away")
			}
			return nil
		}); err != nil || calls != 3 || !strings.Contains(said.String(), "away") {
			t.Errorf("persistently() = %v after %d calls, and said %q", err, calls, said.String())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		away := errors.New("away")
		if err := b.persistently(ctx, func(context.Context) error { return away }); !errors.Is(err, away) {
			t.Errorf("what never succeeds ends with %v", err)
		}
	})
}

func TestParseCPUTime(t *testing.T) {
	const line = "42 (a ) name) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 9 0 1000 1000000 500"
	got, err := parseCPUTime([]byte(line))
	if err != nil || got != 3*time.Second {
		t.Errorf("parseCPUTime() = %s, %v, want 3s", got, err)
	}
	for _, broken := range []string{"", "42 (name) S 1 2", "42 (name) S 1 42 42 0 -1 4194304 100 0 0 0 x 50 7"} {
		if _, err := parseCPUTime([]byte(broken)); err == nil {
			t.Errorf("parseCPUTime(%q) finds a time", broken)
		}
	}
}

func TestMeter(t *testing.T) {
	m := startMeter(t.Context(), "work", self("me"), subject{"nobody", func() int { return 0 }})
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for now := before; now < before+2*clockTick; { // what is measured is work
		if now, err = cpuTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	got := m.end()
	if len(got) != 1 || got[0].Process != "me" || got[0].Phase != "work" {
		t.Fatalf("end() = %+v, want this process alone", got)
	}
	if u := got[0]; u.CPUSeconds <= 0 || u.CPUPercent <= 0 || u.ResidentMiB < 1 || u.PeakMiB < u.ResidentMiB || u.ProportionalMiB < 1 {
		t.Errorf("end() = %+v", u)
	}
}

func TestThisMachine(t *testing.T) {
	m, err := thisMachine()
	if err != nil || m.Cores < 1 || m.MemoryGiB <= 0 || m.Kernel == "" || m.Go == "" {
		t.Errorf("thisMachine() = %+v, %v", m, err)
	}
	if load, err := loadAverage(); err != nil || load < 0 {
		t.Errorf("loadAverage() = %v, %v", load, err)
	}
	if _, err := procFile(0, "stat"); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("procFile() of no process: %v", err)
	}
}

func TestStatusIsAsLongAsItSays(t *testing.T) {
	for _, name := range []string{"app-00000", "new-1-00199"} {
		if n := len(text(status(name, "r1000"))); n < statusBytes-150 || n > statusBytes+150 {
			t.Errorf("the status of %s has %d bytes, not about %d", name, n, statusBytes)
		}
	}
}

func TestDifferences(t *testing.T) {
	hub := func() map[string]map[string]any {
		return map[string]map[string]any{"a": application("a", "edge-1", "edge-1", "r1"), "b": application("b", "edge-1", "edge-1", "r1")}
	}
	same := hub()
	same["a"]["spec"].(map[string]any)["destination"] = map[string]any{"server": "https://kubernetes.default.svc"}
	changed := hub()
	changed["b"]["spec"].(map[string]any)["project"] = "other"
	changed["a"]["status"] = status("a", "r1")
	missing := hub()
	delete(missing, "b")
	for name, test := range map[string]struct {
		spoke map[string]map[string]any
		want  string
	}{
		"only the destination differs": {same, ""},
		"spec and status differ":       {changed, "the sides differ in 2 Applications: "},
		"one is missing":               {missing, "the sides differ in 1 Applications: b is missing"},
	} {
		got := ""
		if err := lost(differences(hub(), test.spoke)); err != nil {
			got = err.Error()
		}
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := differences(missing, hub()); !cmp.Equal(got, []string{"b is too much"}) {
		t.Errorf("differences() = %v", got)
	}
}

func TestArrivals(t *testing.T) {
	a := newArrivals(2)
	a.add("one")
	a.add("one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.wait(ctx); err == nil || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("wait() with one of two = %v", err)
	}
	a.add("two")
	a.add("three")
	if err := a.wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestView(t *testing.T) {
	t.Parallel()
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{harness.Applications: "ApplicationList"})
	where := client.Resource(harness.Applications).Namespace(edge)
	make1 := func(name, revision string) {
		if err := create(t.Context(), where, application(name, edge, edge, revision)); err != nil {
			t.Fatal(err)
		}
	}
	make1("before", "r1")
	v, err := openView(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.close)

	begun := time.Now()
	x := v.expect(ofSpec, map[string]string{"before": "r1", "after": "r2"})
	make1("after", "r1")
	if err := setRevision(t.Context(), where, "after", "r2"); err != nil {
		t.Fatal(err)
	}
	last, err := x.wait(t.Context())
	if err != nil || last.Before(begun) {
		t.Errorf("wait() = %s, %v", last, err)
	}
	if writes, lists := v.count(); writes != 2 || lists != 1 {
		t.Errorf("count() = %d writes in %d lists, want 2 in 1", writes, lists)
	}

	x = v.expect(ofStatus, map[string]string{"before": "r7"})
	if err := setStatus(t.Context(), where, "before", "r7"); err != nil {
		t.Fatal(err)
	}
	if _, err := x.wait(t.Context()); err != nil {
		t.Error(err)
	}
	x = v.expect(ofSpec, all([]string{"after"}, ""))
	if err := where.Delete(t.Context(), "after", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.wait(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.expect(ofSpec, all([]string{"before", "never"}, "r9")).wait(ctx); err == nil || !strings.Contains(err.Error(), "2 of 2") {
		t.Errorf("wait() for what does not come = %v", err)
	}
}

// An API server ends watches; what happened in between is not missed.
func TestViewWatchesAgain(t *testing.T) {
	t.Parallel()
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{harness.Applications: "ApplicationList"})
	where := client.Resource(harness.Applications).Namespace(edge)
	v := &view{where: where, apps: map[string]seen{"gone": {spec: "r1"}}, expected: map[*expectation]struct{}{}, failed: make(chan struct{})}
	x := v.expect(ofSpec, map[string]string{"gone": "", "new": "r3"})
	if err := create(t.Context(), where, application("new", edge, edge, "r3")); err != nil {
		t.Fatal(err)
	}
	events, err := v.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	events.Stop()
	if _, err := x.wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHasCondition(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Good", "status": "True"}, map[string]any{"type": "Bad", "status": "False"},
	}}}}
	for kind, want := range map[string]bool{"Good": true, "Bad": false, "Other": false} {
		if got := hasCondition(o, kind); got != want {
			t.Errorf("hasCondition(%s) = %t", kind, got)
		}
	}
}
