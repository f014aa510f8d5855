package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// project notes what a writer made of an AppProject.
func (b *logbook) project(place string, writer Writer, name, uid string, annotations m, spec m, gone bool) *logbook {
	key := stream.ResourceKey{Kind: stream.AppProject, Namespace: argocdNamespace, Name: name}
	object := m{"metadata": m{"name": name, "namespace": argocdNamespace, "annotations": annotations}, "spec": spec}
	return b.note(Entry{Place: place, Writer: writer, Op: memory.OpUpdate, Key: key, UID: uid, Gone: gone, Raw: application{object}.raw()})
}

// switched notes that a setting of an agent changed on the hub, and waits out what was under
// way.
func (b *logbook) switched(agent, name string, on bool) *logbook {
	b.note(Entry{Place: agent, Note: Switched, Side: stream.Hub, Setting: name, On: on})
	for range int(lateTime/time.Second) + 1 {
		b.note(Entry{Place: agent, Note: Started})
	}
	return b
}

// Copies of the AppProject default come where the hub shares it, and are given up as they are
// when it does not.
func TestCheckDefault(t *testing.T) {
	hubs, own := m{"description": "the hub's"}, m{"description": "own"}
	start := func() *logbook {
		return newLogbook().project(hubPlace, People, "default", "d", nil, hubs, false).
			project("far", People, "default", "f", m{adoptionAnnotation: adoptAlways}, own, false)
	}
	copied := func(b *logbook, adopted string) *logbook {
		return b.project("far", AgentSide, "default", "f", adoptedFrom(adopted), hubs, false)
	}
	made := func() *logbook { // there was none on the spoke
		return newLogbook().project(hubPlace, People, "default", "d", nil, hubs, false).switched("far", setShare, true).
			project("far", AgentSide, "default", "f", adoptedFrom(""), hubs, false)
	}
	given := func(b *logbook, spec m) *logbook {
		return b.project("far", AgentSide, "default", "f", nil, spec, false)
	}
	for name, c := range map[string]struct {
		log  *logbook
		want []string
	}{
		"the spoke keeps its own":         {log: start()},
		"it is shared, and adopted":       {log: copied(start().switched("far", setShare, true), "f")},
		"it is shared, and does not come": {log: start().switched("far", setShare, true), want: []string{"I1"}},
		"it comes though nobody shares it": {
			log: copied(start(), "f"), want: []string{"I8"},
		},
		"it is made, and stays when it is shared no more": {
			log: made().switched("far", setShare, false), want: []string{"I8"},
		},
		"it is given up":                          {log: given(made().switched("far", setShare, false), hubs)},
		"it is given up and changed":              {log: given(made().switched("far", setShare, false), own), want: []string{"I4"}},
		"it is given up while it is shared":       {log: given(made(), hubs), want: []string{"I4"}},
		"what was adopted comes back":             {log: given(copied(start().switched("far", setShare, true), "f").switched("far", setShare, false), own)},
		"what was adopted comes back as the hubs": {log: given(copied(start().switched("far", setShare, true), "f").switched("far", setShare, false), hubs), want: []string{"I4"}},
		"it is deleted instead": {
			log:  made().switched("far", setShare, false).project("far", AgentSide, "default", "f", adoptedFrom(""), hubs, true),
			want: []string{"I4", "I4"}, // no one asked for it either

		},
	} {
		t.Run(name, func(t *testing.T) {
			log := c.log.end()
			if diff := cmp.Diff(c.want, found(log)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(log)))
			}
		})
	}
}
