package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// raw notes what a writer made of the Application of agent far.
func (b *logbook) raw(place string, writer Writer, uid string, gone bool, fields m) *logbook {
	key := stream.ResourceKey{Kind: stream.Application, Namespace: argocdNamespace, Name: "app"}
	if place == hubPlace {
		key.Namespace = "far"
	}
	b.revision++
	return b.note(Entry{
		Place: place, Writer: writer, Op: memory.OpUpdate, Key: key, UID: uid, ResourceVersion: fmt.Sprint(b.revision), Gone: gone,
		Raw: application{fields}.raw(),
	})
}

// knows notes what both ends of agent far name of its Application, and the end.
func (b *logbook) knows(hub, spoke *stream.Refusal) Log {
	for side, refusal := range map[stream.Side]*stream.Refusal{stream.Hub: hub, stream.Spoke: spoke} {
		e := Entry{Place: "far", Note: Knows, Side: side, Agreed: true}
		if refusal != nil {
			e.Refused = map[stream.EntryKey]stream.Refusal{{Collection: stream.Applications, Name: "app"}: *refusal}
		}
		b.note(e)
	}
	return b.note(Entry{Place: hubPlace, Note: Settled}).log
}

// An Application of the hub, that shows a condition, and what its spoke has.
func hubs(condition string, spec m) m {
	spec["destination"] = m{"name": "far"}
	o := m{"metadata": m{"name": "app", "namespace": "far", "uid": "h"}, "spec": spec}
	if condition != "" {
		o["status"] = m{"conditions": []any{m{"type": "ArgomeshError", "message": condition}}}
	}
	return o
}

func theirs(annotations m, spec m) m {
	return m{"metadata": m{"name": "app", "namespace": argocdNamespace, "uid": "t", "annotations": annotations}, "spec": spec}
}

func adoptedFrom(uid string) m {
	return m{
		"argocd.argoproj.io/source-uid": "h", "argocd.argoproj.io/principal-uid": hubUID,
		"argomesh.io/source": `{"revision":1,"agent":"far","hash":"1","adopted":"` + uid + `"}`,
	}
}

func found(log Log) []string {
	var got []string
	for _, v := range Check(log) {
		got = append(got, v.Invariant)
	}
	return got
}

// What disagrees has to be named, on both sides, at the Application, and rightly.
func TestCheckNames(t *testing.T) {
	refused := stream.Refusal{Kind: stream.RefusalNotOwned, Message: "it is its owner's"}
	invalid := stream.Refusal{Kind: stream.RefusalInvalid, Message: "the API server of the spoke does not know spec.x"}
	denied := stream.Refusal{Kind: stream.RefusalDenied, Message: "policy"}
	beside := func(condition string) *logbook {
		return newLogbook().raw("far", People, "t", false, theirs(nil, m{"project": "other"})).
			raw(hubPlace, People, "h", false, hubs(condition, m{"project": "default"}))
	}
	short := func(condition string) *logbook {
		return newLogbook().note(Entry{Place: "far", Note: Upgraded, Older: true}).
			raw(hubPlace, People, "h", false, hubs(condition, m{"project": "default", "sourceHydrator": m{"a": "b"}})).
			raw("far", AgentSide, "c", false, theirs(adoptedFrom(""), m{"project": "default"}))
	}
	told := func(b *logbook, paths ...string) Log {
		b.note(Entry{Place: "far", Note: Knows, Side: stream.Hub, Agreed: true, Dropped: map[stream.EntryKey][]string{{Collection: stream.Applications, Name: "app"}: paths}})
		return b.note(Entry{Place: hubPlace, Note: Settled}).log
	}
	for name, c := range map[string]struct {
		log  Log
		want []string
	}{
		"what is its owner's is named on both sides": {log: beside(refused.Message).knows(&refused, &refused)},
		"it is named on the hub alone":               {log: beside(refused.Message).knows(&refused, nil), want: []string{"I8"}},
		"its Application does not show it":           {log: beside("").knows(&refused, &refused), want: []string{"I8"}},
		"nobody names it":                            {log: beside("").knows(nil, nil), want: []string{"I1", "I8"}},
		"it is named for what it is not":             {log: beside(denied.Message).knows(&denied, &denied), want: []string{"I1", "I8"}},
		"it is named for a schema that is no older":  {log: beside(invalid.Message).knows(&invalid, &invalid), want: []string{"I1", "I8"}},
		"a refusal is shown though it is over":       {log: short("agent far did not apply it: it is over").knows(nil, nil), want: []string{"I8", "I8"}},
		"what is applied in part says so":            {log: told(short("without spec.sourceHydrator"), "spec.sourceHydrator")},
		"what is applied in part is said by no end":  {log: short("without spec.sourceHydrator").knows(nil, nil), want: []string{"I8"}},
		"what is applied in part, and shown nowhere": {log: told(short(""), "spec.sourceHydrator"), want: []string{"I8"}},
		"an agent that is suspended need not agree":  {log: beside("").note(Entry{Place: "far", Note: Knows, Side: stream.Hub, Suspended: true}).knows(nil, nil)},
		"of a policy, once the spoke's owner has it so": {
			log: newLogbook().note(Entry{Place: "far", Note: Switched, Side: stream.Spoke, Setting: setPolicy, On: true}).
				raw(hubPlace, People, "h", false, hubs(denied.Message, m{"project": "default"})).knows(&denied, &denied),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, found(c.log)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(c.log)))
			}
		})
	}
}

// What was there before is adopted where that is allowed, and comes back.
func TestCheckAdoption(t *testing.T) {
	mine := m{"project": "default", "source": "mine"}
	hub := m{"project": "default", "source": "hub"}
	start := func(says string) *logbook {
		annotations := m{}
		if says != "" {
			annotations[adoptionAnnotation] = says
		}
		return newLogbook().raw("far", People, "t", false, theirs(annotations, mine))
	}
	adopted := func(b *logbook) *logbook {
		return b.raw("far", AgentSide, "t", false, theirs(adoptedFrom("t"), hub))
	}
	allows := func(b *logbook, on bool) *logbook {
		return b.note(Entry{Place: "far", Note: Switched, Side: stream.Spoke, Setting: setAdopt, On: on})
	}
	later := func(b *logbook) *logbook {
		for range int(lateTime/time.Second) + 1 {
			b.note(Entry{Place: "far", Note: Started})
		}
		return b
	}
	for name, c := range map[string]struct {
		log  *logbook
		want []string
	}{
		"allowed by the object":                  {log: adopted(start(adoptAlways))},
		"allowed by the setting":                 {log: adopted(allows(start(""), true))},
		"allowed by nobody":                      {log: adopted(start("")), want: []string{"I4"}},
		"forbidden by the object":                {log: adopted(allows(start(adoptNever), true)), want: []string{"I4"}},
		"a moment after it was allowed":          {log: adopted(allows(start(""), false))},
		"long after it was allowed":              {log: adopted(later(allows(start(""), false))), want: []string{"I4"}},
		"it is written, and not adopted":         {log: start(adoptAlways).raw("far", AgentSide, "t", false, theirs(adoptedFrom(""), hub)), want: []string{"I4"}},
		"it comes back":                          {log: adopted(start(adoptAlways)).raw("far", AgentSide, "t", false, theirs(nil, mine))},
		"it comes back as the hub's":             {log: adopted(start(adoptAlways)).raw("far", AgentSide, "t", false, theirs(nil, hub)), want: []string{"I4"}},
		"a copy that was not adopted is let go":  {log: newLogbook().raw("far", AgentSide, "t", false, theirs(adoptedFrom(""), hub)).raw("far", AgentSide, "t", false, theirs(nil, hub)), want: []string{"I4"}},
		"it is deleted":                          {log: adopted(start(adoptAlways)).raw("far", AgentSide, "t", true, theirs(adoptedFrom("t"), hub)), want: []string{"I4", "I4"}},
		"a copy of another hub is written":       {log: newLogbook().raw("far", People, "t", false, theirs(m{"argocd.argoproj.io/source-uid": "x", "argocd.argoproj.io/principal-uid": "other", "argomesh.io/source": `{"agent":"far"}`}, mine)).raw("far", AgentSide, "t", false, theirs(adoptedFrom("t"), hub)), want: []string{"I4"}},
		"a copy of another agent is written too": {log: newLogbook().raw("far", People, "t", false, theirs(m{"argocd.argoproj.io/source-uid": "x", "argocd.argoproj.io/principal-uid": hubUID, "argomesh.io/source": `{"agent":"near"}`}, mine)).raw("far", AgentSide, "t", false, theirs(adoptedFrom(""), hub)), want: []string{"I4"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, found(c.log.log)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(c.log.log)))
			}
		})
	}
}

// No one writes at rest, and in a fight few do.
func TestCheckWrites(t *testing.T) {
	copied := func(project string) m { return theirs(adoptedFrom(""), m{"project": project}) }
	rest := func(writer Writer, fights bool) Log {
		b := newLogbook().raw(hubPlace, People, "h", false, hubs("", m{"project": "default"})).raw("far", AgentSide, "c", false, copied("default"))
		if fights {
			b.note(Entry{Place: "far", Note: Fights, Side: stream.Spoke})
		}
		b.end()
		b.raw("far", writer, "c", false, copied("other"))
		return b.note(Entry{Place: hubPlace, Note: Rested}).log
	}
	fight := func(rounds, restart int) Log {
		b := newLogbook().raw("far", AgentSide, "c", false, copied("ours"))
		for i := range rounds {
			if restart > 0 && i%restart == 0 {
				b.note(Entry{Place: hubPlace, Note: Started})
			}
			b.raw("far", People, "c", false, copied("theirs")).raw("far", AgentSide, "c", false, copied("ours"))
		}
		return b.log
	}
	for name, c := range map[string]struct {
		log  Log
		want []string
	}{
		"somebody else writes at rest":          {log: rest(People, false)},
		"we write at rest":                      {log: rest(AgentSide, false), want: []string{"I8"}},
		"we write in a fight that does not end": {log: rest(AgentSide, true)},
		"as many times as may be":               {log: fight(mendLimit, 0)},
		"more often than may be":                {log: fight(mendLimit+1, 0), want: []string{"I8"}},
		"with processes that begin in between":  {log: fight(3*mendLimit, mendLimit)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, found(c.log)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(c.log)))
			}
		})
	}
}
