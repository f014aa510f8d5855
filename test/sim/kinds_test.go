package sim

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// of notes that a writer made an object of another kind what it is now.
func (b *logbook) of(place string, writer Writer, key stream.ResourceKey, uid, source string, fields m) *logbook {
	return b.kind(place, writer, key, uid, source, fields, false)
}

// marked are the annotations of an agent's copy on its spoke.
func marked(source, agent string) m {
	return m{
		"argocd.argoproj.io/source-uid": source, "argocd.argoproj.io/principal-uid": hubUID,
		"argomesh.io/source": `{"revision":1,"agent":"` + agent + `"}`,
	}
}

// without notes that one went.
func (b *logbook) without(place string, writer Writer, key stream.ResourceKey, uid, source string, fields m) *logbook {
	return b.kind(place, writer, key, uid, source, fields, true)
}

func (b *logbook) kind(place string, writer Writer, key stream.ResourceKey, uid, source string, fields m, gone bool) *logbook {
	annotations := m{}
	if source != "" {
		annotations = marked(source, place)
	}
	object := m{"metadata": m{"name": key.Name, "namespace": key.Namespace, "annotations": annotations}}
	for name, value := range fields {
		object[name] = value
	}
	b.revision++
	return b.note(Entry{
		Place: place, Writer: writer, Op: memory.OpUpdate, Key: key, UID: uid, ResourceVersion: fmt.Sprint(b.revision), Gone: gone,
		Raw: application{object}.raw(),
	})
}

// Each case is a history of AppProjects, Secrets and ConfigMaps that breaks an invariant,
// beside one that does not.
func TestCheckKinds(t *testing.T) {
	far := Agent{Name: "far", Mode: stream.Managed}
	project, secret, keys := far.projectOf(), far.repositoryOf("a"), trustKey()
	admits := func(whom string) m {
		return m{"spec": m{"description": "of/far/p/1", "destinations": []any{m{"name": whom}}}}
	}
	data := func(password string) m {
		return m{"data": m{"project": base64.StdEncoding.EncodeToString([]byte(project.Name)), "password": password}}
	}
	items := func(pairs ...string) m {
		d := m{}
		for i := 0; i < len(pairs); i += 2 {
			d[pairs[i]] = pairs[i+1]
		}
		return m{"data": d}
	}
	start := func() *logbook {
		return newLogbook().of(hubPlace, People, project, "p", "", admits("far")).of("far", AgentSide, project, "cp", "p", admits("in-cluster")).
			of(hubPlace, People, secret, "s", "", data("1")).of("far", AgentSide, secret, "cs", "s", data("1"))
	}
	for name, c := range map[string]struct {
		log  Log
		want []string
	}{
		"both sides agree": {log: start().end()},
		"a Secret that never came": {
			log:  newLogbook().of(hubPlace, People, project, "p", "", admits("far")).of("far", AgentSide, project, "cp", "p", admits("far")).of(hubPlace, People, secret, "s", "", data("1")).end(),
			want: []string{"I1"},
		},
		"an older Secret than the hub's": {
			log:  start().of(hubPlace, People, secret, "s", "", data("2")).end(),
			want: []string{"I1"},
		},
		"a Secret of a project that admits others stays at home": {
			log: newLogbook().of(hubPlace, People, project, "p", "", admits("free")).of(hubPlace, People, secret, "s", "", data("1")).end(),
		},
		"a Secret that leaves with its project": {
			log: start().of(hubPlace, People, project, "p", "", admits("free")).
				without("far", AgentSide, project, "cp", "p", nil).without("far", AgentSide, secret, "cs", "s", nil).end(),
		},
		"a Secret that stays when its project has left": {
			log:  start().of(hubPlace, People, project, "p", "", admits("free")).without("far", AgentSide, project, "cp", "p", nil).end(),
			want: []string{"I8"},
		},
		"a Secret that goes and comes though nobody asked for it": {
			log:  start().without("far", AgentSide, secret, "cs", "s", nil).of("far", AgentSide, secret, "cs2", "s", data("1")).end(),
			want: []string{"I4"},
		},
		"one that somebody deleted on the spoke": {
			log: start().without("far", People, secret, "cs", "s", nil).of("far", AgentSide, secret, "cs2", "s", data("1")).end(),
		},
		"one that a restore took": {
			log:  start().without(hubPlace, Nobody, secret, "s", "", nil).without("far", AgentSide, secret, "cs", "s", nil).end(),
			want: []string{"I4"},
		},
		"one that a restore took, and somebody accepted": {
			log: start().without(hubPlace, Nobody, secret, "s", "", nil).note(Entry{Place: "far", Note: Accepted}).
				without("far", AgentSide, secret, "cs", "s", nil).end(),
		},
		"another agent's Secret": {
			log:  start().of("far", AgentSide, stream.ResourceKey{Kind: stream.Secret, Namespace: argocdNamespace, Name: "x"}, "x", "", m{"data": m{"v": "of/free/a/1"}}).end(),
			want: []string{"I6"},
		},
		"items beside the spoke's own": {
			log: newLogbook().of("far", People, keys, "ck", "", items("own-1", "local-1")).of(hubPlace, People, keys, "k", "", items("item-1", "1")).
				of("far", AgentSide, keys, "ck", "k", items("own-1", "local-1", "item-1", "1")).end(),
		},
		"an item that stays": {
			log:  newLogbook().of(hubPlace, People, keys, "k", "", items()).of("far", AgentSide, keys, "ck", "k", items("item-1", "1")).end(),
			want: []string{"I8"},
		},
		"an item that never came": {
			log:  newLogbook().of(hubPlace, People, keys, "k", "", items("item-1", "1")).of("far", AgentSide, keys, "ck", "k", items()).end(),
			want: []string{"I1"},
		},
		"an item of the spoke's own that the agent takes": {
			log: newLogbook().of(hubPlace, People, keys, "k", "", items()).of("far", People, keys, "ck", "", items("own-1", "local-1")).
				of("far", AgentSide, keys, "ck", "k", items()).end(),
			want: []string{"I4"},
		},
		"a ConfigMap that the agent deletes": {
			log:  newLogbook().of("far", People, keys, "ck", "", items()).without("far", AgentSide, keys, "ck", "", items()).end(),
			want: []string{"I4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range Check(c.log) {
				got = append(got, v.Invariant)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("Check() finds %q, want %q: %v", got, c.want, Check(c.log))
			}
		})
	}
}

// shared is a log of two agents that share a namespace.
func shared() *logbook {
	b := newLogbook()
	b.log.Agents = []Agent{{Name: "far", Mode: stream.Managed, Shared: true}, {Name: "near", Mode: stream.Managed, Shared: true}}
	return b
}

// at notes what an Application in the shared namespace is now.
func (b *logbook) at(place, destination string, writer Writer, uid, source, spec string, change func(m)) *logbook {
	object := m{
		"metadata": m{"name": "app", "namespace": sharedNamespace, "uid": uid, "annotations": m{}},
		"spec":     m{"project": "default", "destination": m{"name": destination}, "source": spec},
	}
	if source != "" {
		object["metadata"].(m)["annotations"] = marked(source, place)
	}
	if change != nil {
		change(object)
	}
	key := stream.ResourceKey{Kind: stream.Application, Namespace: sharedNamespace, Name: "app"}
	b.revision++
	return b.note(Entry{
		Place: place, Writer: writer, Op: memory.OpUpdate, Key: key, UID: uid, ResourceVersion: fmt.Sprint(b.revision),
		Gone: object["gone"] == true, Raw: application{object}.raw(),
	})
}

// Each case is a history in which an Application is handed over.
func TestCheckHandover(t *testing.T) {
	gone := func(o m) { o["gone"] = true }
	ran := func(run string) func(m) {
		return func(o m) { o["status"] = running("c", run) }
	}
	start := func() *logbook {
		return shared().at(hubPlace, "far", People, "h", "", `"of/far/app/1"`, nil).at("far", "in-cluster", AgentSide, "c", "h", `"of/far/app/1"`, nil)
	}
	handed := func(by Writer) *logbook { return start().at(hubPlace, "near", by, "h", "", `"of/near/app/2"`, nil) }
	release := func(b *logbook) *logbook {
		return b.at("far", "in-cluster", AgentSide, "c", "h", `"of/far/app/1"`, gone)
	}
	taken := func(b *logbook) *logbook {
		return b.at("near", "in-cluster", AgentSide, "d", "h", `"of/near/app/2"`, nil)
	}
	end := func(b *logbook) Log {
		for _, place := range []string{"far", "near"} {
			for _, side := range []stream.Side{stream.Hub, stream.Spoke} {
				b.note(Entry{Place: place, Note: Knows, Side: side, Agreed: true})
			}
		}
		return b.note(Entry{Place: hubPlace, Note: Settled}).log
	}
	for name, c := range map[string]struct {
		log  Log
		want string // the invariants, in order
	}{
		"released here, made there":             {log: end(taken(release(handed(People))))},
		"never released":                        {log: end(taken(handed(People))), want: "I8"},
		"never made":                            {log: end(release(handed(People))), want: "I1 I8"},
		"released though nobody handed it over": {log: end(release(start())), want: "I4 I1 I8"},
		"released after a restore of the hub":   {log: end(taken(release(handed(Nobody)))), want: "I4"},
		"what is the second's at the first": {
			log:  end(taken(release(handed(People).at("far", "in-cluster", AgentSide, "c", "h", `"of/near/app/2"`, nil)))),
			want: "I6",
		},
		"a command that runs at both": {
			log: end(taken(release(start().at("far", "in-cluster", Controller, "c", "h", `"of/far/app/1"`, ran("1")).
				at(hubPlace, "near", People, "h", "", `"of/near/app/2"`, nil))).
				at("near", "in-cluster", Controller, "d", "h", `"of/near/app/2"`, ran("2")).
				at(hubPlace, "near", Principal, "h", "", `"of/near/app/2"`, ran("2"))),
			want: "I5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range Check(c.log) {
				got = append(got, v.Invariant)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("Check() finds %q, want %q: %v", got, c.want, Check(c.log))
			}
		})
	}
}

// What a drawn history is to try comes about, or nothing follows from its passing.
func TestHistoriesReach(t *testing.T) {
	t.Parallel()
	reached := map[string]int{}
	for seed := range uint64(12) {
		log := logOf(t, Generate(seed))
		copies := map[string]string{} // of a hub's Application in a shared namespace, the place of the last one
		for _, e := range log.Entries {
			source := ""
			if e.Note == "" {
				source = parse(e.Raw).sourceUID()
			}
			switch {
			case e.Place == hubPlace || e.Writer != AgentSide || source == "":
			case e.Key.Kind == stream.Application && e.Key.Namespace == sharedNamespace:
				if at, known := copies[source]; known && at != e.Place {
					reached["an Application on another spoke"]++
				}
				copies[source] = e.Place
			case e.Key.Kind == stream.ConfigMap:
				reached["items"]++
			case e.Gone:
				reached["a "+string(e.Key.Kind)+" leaves"]++
			default:
				reached["a "+string(e.Key.Kind)+" comes"]++
			}
		}
	}
	for _, what := range []string{
		"an Application on another spoke", "items", "a Secret comes", "a Secret leaves", "a AppProject comes", "a AppProject leaves",
	} {
		if reached[what] == 0 {
			t.Errorf("no history has it: %s; reached are %v", what, reached)
		}
	}
	t.Log(reached)
}
