package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// m is generic JSON.
type m = map[string]any

// logbook writes logs by hand.
type logbook struct {
	log      Log
	revision int
}

func newLogbook() *logbook {
	return &logbook{log: Log{Agents: []Agent{{Name: "far", Mode: stream.Managed}, {Name: "free", Mode: stream.Autonomous}}}}
}

func (b *logbook) note(e Entry) *logbook {
	e.At = time.Duration(len(b.log.Entries)) * time.Second
	b.log.Entries = append(b.log.Entries, e)
	return b
}

// thing is what an object in a log looks like.
type thing struct {
	uid, source string // of the object, and of its original
	spec        string
	revision    int // in the record of a copy
	cascade     bool
	deleting    bool
	elsewhere   bool
	status      m
	operation   m
	automated   bool
}

func (o thing) application(place string, key stream.ResourceKey, agent string) application {
	meta := m{"name": key.Name, "namespace": key.Namespace, "uid": o.uid}
	annotations := m{}
	if o.source != "" {
		annotations["argocd.argoproj.io/source-uid"] = o.source
		record, _ := json.Marshal(m{"revision": o.revision, "agent": agent, "history": "one"})
		if place != hubPlace {
			annotations["argocd.argoproj.io/principal-uid"] = hubUID
		}
		annotations["argomesh.io/source"] = string(record)
	}
	meta["annotations"] = annotations
	if o.cascade {
		meta["finalizers"] = []any{cascadeFinalizer}
	}
	if o.deleting {
		meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	destination := agent
	if o.elsewhere {
		destination = "elsewhere"
	}
	fields := m{"metadata": meta, "spec": m{"project": "default", "source": o.spec, "destination": m{"name": destination}}}
	if o.status != nil {
		fields["status"] = o.status
	}
	if o.operation != nil {
		fields["operation"] = o.operation
	}
	if o.automated {
		fields["spec"].(m)["syncPolicy"] = m{"automated": m{}}
	}
	return application{fields}
}

// put notes that a writer made an object what it is now.
func (b *logbook) put(place, agent string, writer Writer, o thing) *logbook {
	return b.write(place, agent, writer, memory.OpUpdate, o, false)
}

// drop notes that an object went, as it was last.
func (b *logbook) drop(place, agent string, writer Writer, o thing) *logbook {
	return b.write(place, agent, writer, memory.OpDelete, o, true)
}

func (b *logbook) write(place, agent string, writer Writer, op memory.Op, o thing, gone bool) *logbook {
	namespace := argocdNamespace
	if place == hubPlace {
		namespace = agent
	}
	key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: "app"}
	b.revision++
	return b.note(Entry{
		Place: place, Writer: writer, Op: op, Key: key, UID: o.uid, ResourceVersion: fmt.Sprint(b.revision), Gone: gone,
		Raw: o.application(place, key, agent).raw(),
	})
}

func (b *logbook) end() Log {
	for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
		b.note(Entry{Place: "far", Note: Knows, Side: side, Agreed: true})
	}
	return b.note(Entry{Place: hubPlace, Note: Settled}).log
}

func running(id, run string) m {
	return m{"operationState": m{
		"phase": "Running", "run": run,
		"operation": m{"info": []any{m{"name": "argomesh.io/command", "value": id}}},
	}}
}

func showing(revision string) m { return m{"sync": m{"revision": revision}} }

// Each case is a history that breaks one invariant, beside one that does not and
// differs by as little as may be.
func TestCheck(t *testing.T) {
	hub := thing{uid: "h", spec: "1"}
	copied := thing{uid: "s", source: "h", spec: "1", revision: 1}
	original := thing{uid: "o", spec: "1"}
	mirrored := thing{uid: "m", source: "o", spec: "1", revision: 1}
	with := func(o thing, change func(*thing)) thing {
		change(&o)
		return o
	}
	leaving := func(o *thing) { o.deleting, o.cascade = true, true }
	plain := func(o *thing) { o.deleting = true }
	start := func() *logbook {
		return newLogbook().put(hubPlace, "far", People, hub).put("far", "far", AgentSide, copied)
	}
	// late is a copy that comes when the deletion of its original is over, and goes again.
	late := func(change func(*thing)) *logbook {
		next, made := with(hub, func(o *thing) { o.uid = "h2" }), with(copied, func(o *thing) { o.uid, o.source = "s2", "h2" })
		return start().drop(hubPlace, "far", People, hub).drop("far", "far", AgentSide, copied).
			put(hubPlace, "far", People, next).put(hubPlace, "far", People, with(next, leaving)).drop(hubPlace, "far", Principal, with(next, plain)).
			put("far", "far", AgentSide, made).put("far", "far", People, with(made, change)).drop("far", "far", AgentSide, with(made, change))
	}
	for name, c := range map[string]struct {
		log  Log
		want []string
	}{
		"both sides agree": {log: start().end()},
		"a spec that never reached the spoke": {
			log:  newLogbook().put(hubPlace, "far", People, hub).end(),
			want: []string{"I1", "I8"},
		},
		"an older spec than the hub's": {
			log:  start().put(hubPlace, "far", People, with(hub, func(o *thing) { o.spec = "2" })).end(),
			want: []string{"I1", "I8"},
		},
		"an application of another destination stays at home": {
			log: newLogbook().put(hubPlace, "far", People, with(hub, func(o *thing) { o.elsewhere = true })).end(),
		},
		"an autonomous spec that never reached the hub": {
			log:  newLogbook().put("free", "free", People, original).end(),
			want: []string{"I1", "I8"},
		},
		"a spec goes forward": {
			log: start().put("far", "far", AgentSide, with(copied, func(o *thing) { o.revision = 3 })).end(),
		},
		"a spec goes back": {
			log: start().put("far", "far", AgentSide, with(copied, func(o *thing) { o.revision = 3 })).
				put("far", "far", AgentSide, copied).end(),
			want: []string{"I2"},
		},
		"a spec goes back with the history of the hub": {
			log: start().put("far", "far", AgentSide, with(copied, func(o *thing) { o.revision = 3 })).
				note(Entry{Place: hubPlace, Note: Restored}).put("far", "far", AgentSide, copied).end(),
		},
		"a status that was true": {
			log: start().put("far", "far", Controller, with(copied, func(o *thing) { o.status = showing("a") })).
				put(hubPlace, "far", Principal, with(hub, func(o *thing) { o.status = showing("a") })).end(),
		},
		"a status that was never true": {
			log:  start().put(hubPlace, "far", Principal, with(hub, func(o *thing) { o.status = showing("a") })).end(),
			want: []string{"I3", "I8"},
		},
		"a status goes back": {
			log: start().put("far", "far", Controller, with(copied, func(o *thing) { o.status = showing("a") })).
				put("far", "far", Controller, with(copied, func(o *thing) { o.status = showing("b") })).
				put(hubPlace, "far", Principal, with(hub, func(o *thing) { o.status = showing("b") })).
				put(hubPlace, "far", Principal, with(hub, func(o *thing) { o.status = showing("a") })).
				put(hubPlace, "far", Principal, with(hub, func(o *thing) { o.status = showing("b") })).end(),
			want: []string{"I3"},
		},
		"a status goes back with its spoke": {
			log: start().put("far", "far", Controller, with(copied, func(o *thing) { o.status = showing("a") })).
				put("far", "far", Controller, with(copied, func(o *thing) { o.status = showing("b") })).
				put(hubPlace, "far", Principal, with(hub, func(o *thing) { o.status = showing("b") })).
				note(Entry{Place: "far", Note: Restored}).
				write("far", "far", Nobody, memory.OpRestore, with(copied, func(o *thing) { o.status = showing("a") }), false).
				put(hubPlace, "far", Principal, with(hub, func(o *thing) { o.status = showing("a") })).end(),
		},
		"a witnessed cascade": {
			log: start().put(hubPlace, "far", People, with(hub, leaving)).
				put("far", "far", AgentSide, with(copied, leaving)).
				drop("far", "far", Controller, with(copied, plain)).
				drop(hubPlace, "far", Principal, with(hub, plain)).end(),
		},
		"a witnessed cascade that is a release": {
			log: start().put(hubPlace, "far", People, with(hub, leaving)).
				drop("far", "far", AgentSide, copied).
				drop(hubPlace, "far", Principal, with(hub, plain)).end(),
			want: []string{"I4"},
		},
		"a copy that a call of before makes when all is over": {
			log: late(func(*thing) {}).end(),
		},
		"one on which Argo CD acts by itself": {
			log:  late(func(o *thing) { o.automated = true }).end(),
			want: []string{"I4"},
		},
		"one on which somebody has Argo CD act": {
			log:  late(func(o *thing) { o.operation = m{"sync": m{}} }).end(),
			want: []string{"I4"},
		},
		"a release of what was elsewhere before it went": {
			log: start().put(hubPlace, "far", People, with(hub, func(o *thing) { o.elsewhere = true })).
				put(hubPlace, "far", People, with(hub, func(o *thing) { leaving(o); o.elsewhere = true })).
				drop("far", "far", AgentSide, copied).
				drop(hubPlace, "far", People, with(hub, plain)).end(),
		},
		"a witnessed cascade that ends too early": {
			log: start().put(hubPlace, "far", People, with(hub, leaving)).
				drop(hubPlace, "far", Principal, with(hub, plain)).
				put("far", "far", AgentSide, with(copied, leaving)).
				drop("far", "far", Controller, with(copied, plain)).end(),
			want: []string{"I4"},
		},
		"a cascade that nobody asked for": {
			log: start().put(hubPlace, "far", People, with(hub, plain)).
				put("far", "far", AgentSide, with(copied, leaving)).
				drop("far", "far", Controller, with(copied, plain)).
				drop(hubPlace, "far", People, with(hub, plain)).end(),
			want: []string{"I4"},
		},
		"a cascade asked for on the spoke": {
			log: start().put("far", "far", People, with(copied, func(o *thing) { o.cascade = true })).
				put("far", "far", People, with(copied, leaving)).
				drop("far", "far", Controller, with(copied, plain)).
				put("far", "far", AgentSide, with(copied, func(o *thing) { o.uid = "s2" })).end(),
		},
		"a plain delete on the spoke of what the agent gave a finalizer": {
			log: start().put("far", "far", AgentSide, with(copied, func(o *thing) { o.cascade = true })).
				put("far", "far", People, with(copied, leaving)).
				drop("far", "far", Controller, with(copied, plain)).
				put("far", "far", AgentSide, with(copied, func(o *thing) { o.uid = "s2" })).end(),
			want: []string{"I4"},
		},
		"a copy that comes back after its cascade": {
			log: start().put(hubPlace, "far", People, with(hub, leaving)).
				put("far", "far", AgentSide, with(copied, leaving)).
				drop("far", "far", Controller, with(copied, plain)).
				put("far", "far", AgentSide, with(copied, func(o *thing) { o.uid = "s2" })).
				drop("far", "far", AgentSide, with(copied, func(o *thing) { o.uid = "s2" })).
				drop(hubPlace, "far", Principal, with(hub, plain)).end(),
			want: []string{"I4"},
		},
		"a release": {
			log: start().drop(hubPlace, "far", People, hub).drop("far", "far", AgentSide, copied).end(),
		},
		"a release of what is still on the hub": {
			log:  start().drop("far", "far", AgentSide, copied).put("far", "far", AgentSide, with(copied, func(o *thing) { o.uid = "s2" })).end(),
			want: []string{"I4"},
		},
		"a release of what a restore took": {
			log: start().note(Entry{Place: hubPlace, Note: Restored}).write(hubPlace, "far", Nobody, memory.OpRestore, hub, true).
				drop("far", "far", AgentSide, copied).end(),
			want: []string{"I4"},
		},
		"a release of what a restore took and a person accepted": {
			log: start().note(Entry{Place: hubPlace, Note: Restored}).write(hubPlace, "far", Nobody, memory.OpRestore, hub, true).
				note(Entry{Place: "far", Note: Accepted}).drop("far", "far", AgentSide, copied).end(),
		},
		"a person accepted before the restore": {
			log: start().note(Entry{Place: "far", Note: Accepted}).
				note(Entry{Place: hubPlace, Note: Restored}).write(hubPlace, "far", Nobody, memory.OpRestore, hub, true).
				drop("far", "far", AgentSide, copied).end(),
			want: []string{"I4"},
		},
		"the agent deletes what is the spoke's own": {
			log:  newLogbook().put("far", "far", People, original).drop("far", "far", AgentSide, original).end(),
			want: []string{"I4"},
		},
		"the agent deletes an original": {
			log:  newLogbook().put("free", "free", People, original).drop("free", "free", AgentSide, original).end(),
			want: []string{"I4"},
		},
		"the principal deletes an application of the hub": {
			log:  start().drop(hubPlace, "far", Principal, hub).drop("far", "far", People, copied).end(),
			want: []string{"I4"},
		},
		"the spoke's cluster is rebuilt": {
			log: start().note(Entry{Place: "far", Note: Rebuilt}).put("far", "far", AgentSide, with(copied, func(o *thing) { o.uid = "s2" })).end(),
		},
		"a command runs once": {
			log: start().put("far", "far", Controller, with(copied, func(o *thing) { o.status = running("c", "1") })).
				put("far", "far", People, with(copied, func(o *thing) { o.status = nil })).
				put("far", "far", Controller, with(copied, func(o *thing) { o.status = running("d", "2") })).
				put("far", "far", Controller, copied).end(),
		},
		"a command runs twice": {
			log: start().put("far", "far", Controller, with(copied, func(o *thing) { o.status = running("c", "1") })).
				put("far", "far", People, with(copied, func(o *thing) { o.status = nil })).
				put("far", "far", Controller, with(copied, func(o *thing) { o.status = running("c", "2") })).
				put("far", "far", Controller, copied).end(),
			want: []string{"I5"},
		},
		"a command runs that was never sent": {
			log: start().put(hubPlace, "far", Principal, with(hub, func(o *thing) {
				o.status = running("c", "")
				o.status["operationState"].(m)["message"] = "not run by agent far: terminated before it was sent"
			})).put("far", "far", Controller, with(copied, func(o *thing) { o.status = running("c", "1") })).
				put("far", "far", Controller, copied).put(hubPlace, "far", People, hub).end(),
			want: []string{"I5"},
		},
		"content of another agent": {
			log: start().put(hubPlace, "far", People, with(hub, func(o *thing) { o.spec = "of/free/app/1" })).
				put("far", "far", AgentSide, with(copied, func(o *thing) { o.spec = "of/free/app/1" })).end(),
			want: []string{"I6", "I6"},
		},
		"an operation that one side alone has": {
			log:  start().put(hubPlace, "far", People, with(hub, func(o *thing) { o.operation = m{"sync": m{}} })).end(),
			want: []string{"I8"},
		},
		"a side that does not know of agreement": {
			log:  start().note(Entry{Place: "far", Note: Knows, Side: stream.Hub}).end(),
			want: []string{"I8"},
		},
		"a side that holds deletions": {
			log: newLogbook().put("far", "far", AgentSide, copied).note(Entry{Place: "far", Note: Knows, Side: stream.Hub, Held: 1}).end(),
		},
		"a side that should hold deletions and does not": {
			log:  newLogbook().put("far", "far", AgentSide, copied).end(),
			want: []string{"I8"},
		},
		"a mirror goes with its original": {
			log: newLogbook().put("free", "free", People, original).put(hubPlace, "free", Principal, mirrored).
				drop("free", "free", People, original).drop(hubPlace, "free", Principal, mirrored).end(),
		},
		"a mirror goes with the spoke's cluster": {
			log: newLogbook().put("free", "free", People, original).put(hubPlace, "free", Principal, mirrored).
				note(Entry{Place: "free", Note: Rebuilt}).drop(hubPlace, "free", Principal, mirrored).end(),
			want: []string{"I4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range Check(c.log) {
				got = append(got, v.Invariant)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(c.log)))
			}
		})
	}
}

// The checker must also find what is wrong with the log of a real history.
func TestCheckFindsMutations(t *testing.T) {
	t.Parallel()
	trace := Trace{Seed: 1, Agents: []Agent{{Name: "far", Mode: stream.Managed}}}
	for n, line := range []string{
		"edit far app n=1 wait=3s", "sync far app wait=15s", "edit far app n=2 wait=3s", "status far app n=3 wait=3s",
		"remove far app cascade wait=5s", "edit far other n=4 wait=3s", "remove far other wait=3s", "edit far last n=5 wait=3s",
	} {
		c, err := ParseCommand(line)
		if err != nil {
			t.Fatal(err)
		}
		c.Seed = uint64(n)
		trace.Commands = append(trace.Commands, c)
	}
	log := logOf(t, trace)
	if broken := Check(log); len(broken) > 0 {
		t.Fatalf("the history itself: %s", describe(broken))
	}
	for name, c := range map[string]struct {
		mutate func([]Entry) []Entry
		want   string
	}{
		"the spoke loses the last write of the agent": {want: "I1", mutate: func(l []Entry) []Entry {
			return slices.DeleteFunc(l, func(e Entry) bool { return e.Place == "far" && e.Key.Name == "last" })
		}},
		"the agent writes the first spec again": {want: "I2", mutate: func(l []Entry) []Entry {
			first := slices.IndexFunc(l, func(e Entry) bool { return e.Place == "far" && e.Writer == AgentSide })
			last := slices.IndexFunc(l, func(e Entry) bool { return e.Place == "far" && e.Key.Name == "app" && parse(e.Raw).deleting() })
			return slices.Insert(l, last, l[first])
		}},
		"the hub was never asked to delete": {want: "I4", mutate: func(l []Entry) []Entry {
			return slices.DeleteFunc(l, func(e Entry) bool {
				return e.Place == hubPlace && e.Note == "" && (e.Gone || parse(e.Raw).deleting())
			})
		}},
		"the controller never removed the workloads": {want: "I4", mutate: func(l []Entry) []Entry {
			return slices.DeleteFunc(l, func(e Entry) bool { return e.Place == "far" && e.Writer == Controller && e.Gone })
		}},
		"the controller starts the command again": {want: "I5", mutate: func(l []Entry) []Entry {
			i := slices.IndexFunc(l, func(e Entry) bool { return e.Writer == Controller && str(parse(e.Raw).state(), "run") != "" })
			again := l[i]
			app := parse(again.Raw)
			app.state()["run"] = "again"
			again.Raw = app.raw()
			return slices.Insert(l, i+1, again)
		}},
		"the status comes from nowhere": {want: "I3", mutate: func(l []Entry) []Entry {
			return slices.DeleteFunc(l, func(e Entry) bool {
				return e.Place == "far" && e.Note == "" && str(parse(e.Raw).child("status", "sync"), "revision") != ""
			})
		}},
		"the hub holds more than the spoke": {want: "I8", mutate: func(l []Entry) []Entry {
			return slices.DeleteFunc(l, func(e Entry) bool { return e.Place == hubPlace && e.Key.Name == "other" && e.Gone })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			mutated := Log{Agents: log.Agents, Entries: c.mutate(slices.Clone(log.Entries))}
			found := map[string]bool{}
			for _, v := range Check(mutated) {
				found[v.Invariant] = true
			}
			if !found[c.want] {
				t.Errorf("Check() found %v, want %s among them", slices.Sorted(maps.Keys(found)), c.want)
			}
		})
	}
}
