package memory

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// table holds objects by kind, namespace and name.
type table map[stream.Kind]map[string]map[string]stored

// stored is what a table keeps of an object beside its key: a simulation has
// millions.
type stored struct {
	uid      string
	revision uint64
	raw      []byte // may be in many tables
}

func (s stored) object(key stream.ResourceKey) backends.Object {
	return backends.Object{Key: key, UID: s.uid, ResourceVersion: strconv.FormatUint(s.revision, 10), Raw: s.raw}
}

// get returns false when there is none.
func (t table) get(key stream.ResourceKey) (backends.Object, bool) {
	s, ok := t[key.Kind][key.Namespace][key.Name]
	if !ok {
		return backends.Object{}, false
	}
	return s.object(key), true
}

// set takes an object with a resourceVersion that a server made.
func (t table) set(o backends.Object) {
	namespaces := t[o.Key.Kind]
	if namespaces == nil {
		namespaces = map[string]map[string]stored{}
		t[o.Key.Kind] = namespaces
	}
	if namespaces[o.Key.Namespace] == nil {
		namespaces[o.Key.Namespace] = map[string]stored{}
	}
	revision, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
	if err != nil {
		panic("memory: " + err.Error())
	}
	namespaces[o.Key.Namespace][o.Key.Name] = stored{uid: o.UID, revision: revision, raw: o.Raw}
}

func (t table) remove(key stream.ResourceKey) {
	named := t[key.Kind][key.Namespace]
	delete(named, key.Name)
	if len(named) == 0 {
		delete(t[key.Kind], key.Namespace)
	}
}

func (t table) clone() table {
	out := make(table, len(t))
	for kind, namespaces := range t {
		out[kind] = make(map[string]map[string]stored, len(namespaces))
		for namespace, named := range namespaces {
			out[kind][namespace] = maps.Clone(named)
		}
	}
	return out
}

// list returns the objects of a kind, sorted; an empty namespace means all.
func (t table) list(kind stream.Kind, namespace string) []backends.Object {
	namespaces := t[kind]
	if namespace != "" {
		namespaces = map[string]map[string]stored{namespace: namespaces[namespace]}
	}
	var objects []backends.Object
	for namespace, named := range namespaces {
		for name, s := range named {
			objects = append(objects, s.object(stream.ResourceKey{Kind: kind, Namespace: namespace, Name: name}))
		}
	}
	slices.SortFunc(objects, func(a, b backends.Object) int { return compareKeys(a.Key, b.Key) })
	return objects
}

// all returns every object, sorted.
func (t table) all() []backends.Object {
	var objects []backends.Object
	for _, kind := range slices.Sorted(maps.Keys(t)) {
		objects = append(objects, t.list(kind, "")...)
	}
	return objects
}

func compareKeys(a, b stream.ResourceKey) int {
	if c := strings.Compare(string(a.Kind), string(b.Kind)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
