package memory

import (
	"maps"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// table holds objects by kind, namespace and name. Many tables may hold the same
// objects, which are immutable.
type table map[stream.Kind]map[string]map[string]*backends.Object

// get returns nil when there is none.
func (t table) get(key stream.ResourceKey) *backends.Object {
	return t[key.Kind][key.Namespace][key.Name]
}

func (t table) set(o *backends.Object) {
	namespaces := t[o.Key.Kind]
	if namespaces == nil {
		namespaces = map[string]map[string]*backends.Object{}
		t[o.Key.Kind] = namespaces
	}
	if namespaces[o.Key.Namespace] == nil {
		namespaces[o.Key.Namespace] = map[string]*backends.Object{}
	}
	namespaces[o.Key.Namespace][o.Key.Name] = o
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
		out[kind] = make(map[string]map[string]*backends.Object, len(namespaces))
		for namespace, named := range namespaces {
			out[kind][namespace] = maps.Clone(named)
		}
	}
	return out
}

// list returns the objects of a kind, sorted; an empty namespace means all.
func (t table) list(kind stream.Kind, namespace string) []*backends.Object {
	namespaces := t[kind]
	if namespace != "" {
		namespaces = map[string]map[string]*backends.Object{namespace: namespaces[namespace]}
	}
	var objects []*backends.Object
	for _, named := range namespaces {
		objects = slices.AppendSeq(objects, maps.Values(named))
	}
	slices.SortFunc(objects, func(a, b *backends.Object) int { return compareKeys(a.Key, b.Key) })
	return objects
}

// all returns every object, sorted.
func (t table) all() []*backends.Object {
	var objects []*backends.Object
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
