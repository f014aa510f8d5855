package sim

import (
	"slices"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// togetherLog is a log of two agents on one cluster that share a namespace, with an
// Application of the first on both sides.
func togetherLog() *logbook {
	b := &logbook{log: Log{Agents: []Agent{
		{Name: "near", Mode: stream.Managed, Shared: true}, {Name: "far", Mode: stream.Managed, Shared: true, Beside: "near"},
	}}}
	original := thing{uid: "h", spec: "1"}
	key := stream.ResourceKey{Kind: stream.Application, Namespace: sharedNamespace, Name: "app"}
	b.note(Entry{Place: hubPlace, Writer: People, Key: key, UID: "h", Raw: original.application(hubPlace, key, "near").raw()})
	return b.copied("near", sharedNamespace, "near", false)
}

// copied notes that an agent's process writes a copy of an agent's, or deletes it.
func (b *logbook) copied(by, namespace, whose string, gone bool) *logbook {
	key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: "app"}
	o := thing{uid: "s", source: "h", spec: "1", revision: 1}
	return b.note(Entry{
		Place: "near", Writer: AgentSide, Agent: by, Key: key, UID: "s", Gone: gone, Raw: o.application("near", key, whose).raw(),
	})
}

// handed notes that the Application is the second agent's, whose end says that.
func (b *logbook) handed(message string) *logbook {
	key := stream.ResourceKey{Kind: stream.Application, Namespace: sharedNamespace, Name: "app"}
	o := thing{uid: "h", spec: "1"}.application(hubPlace, key, "far")
	if message != "" {
		o.ensure("status")["conditions"] = []any{m{"type": "ArgomeshSync", "message": message}}
	}
	b.note(Entry{Place: hubPlace, Writer: People, Key: key, UID: "h", Raw: o.raw()})
	b.note(Entry{Place: "near", Note: Knows, Side: stream.Hub, Suspended: true})
	entry := stream.EntryKey{Collection: stream.Applications, Namespace: sharedNamespace, Name: "app"}
	refused := map[stream.EntryKey]stream.Refusal{entry: {Kind: stream.RefusalNotOwned, Message: message}}
	for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
		b.note(Entry{Place: "far", Note: Knows, Side: side, Refused: refused})
	}
	return b.note(Entry{Place: hubPlace, Note: Settled})
}

// Each case is a history of two agents on one cluster, and what it breaks.
func TestCheckClusters(t *testing.T) {
	for name, c := range map[string]struct {
		log  *logbook
		want []string
	}{
		"an agent writes its own copy":                 {log: togetherLog().copied("near", sharedNamespace, "near", false)},
		"an agent takes another one's copy over":       {togetherLog().copied("far", sharedNamespace, "far", false), []string{"I4"}},
		"an agent writes another one's copy":           {togetherLog().copied("far", sharedNamespace, "near", false), []string{"I4"}},
		"an agent deletes another one's copy":          {togetherLog().copied("far", sharedNamespace, "near", true), []string{"I4"}},
		"an agent writes beside its Argo CD":           {log: togetherLog().copied("far", argocdNamespace+"-far", "far", false)},
		"an agent writes beside another one's Argo CD": {togetherLog().copied("far", argocdNamespace, "far", false), []string{"I4"}},
		"a copy of another agent is named with it":     {log: togetherLog().handed("it is agent near's")},
		"a copy of another agent is named without it":  {togetherLog().handed("it is somebody's"), []string{"I8"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			broken := Check(c.log.log)
			for _, v := range broken {
				got = append(got, v.Invariant)
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, c.want) {
				t.Errorf("Check() = %v, want %v:\n%s", got, c.want, describe(broken))
			}
		})
	}
}
