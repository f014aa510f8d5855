package link

import (
	"iter"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// table keeps a value for each entry of one collection. There are as many entries
// as objects, and nearly none has a namespace, so the key that is kept of each is
// one string instead of an EntryKey.
type table[V any] struct {
	collection stream.Collection
	values     map[string]V
}

func newTable[V any](c stream.Collection) table[V] {
	return table[V]{collection: c, values: map[string]V{}}
}

// get returns the zero value when there is none.
func (t table[V]) get(key stream.EntryKey) V { return t.values[compact(key)] }

func (t table[V]) set(key stream.EntryKey, v V) { t.values[compact(key)] = v }

func (t table[V]) remove(key stream.EntryKey) { delete(t.values, compact(key)) }

func (t table[V]) len() int { return len(t.values) }

// all yields the entries in no order.
func (t table[V]) all() iter.Seq2[stream.EntryKey, V] {
	return func(yield func(stream.EntryKey, V) bool) {
		for k, v := range t.values {
			if !yield(t.key(k), v) {
				return
			}
		}
	}
}

// compact joins namespace and name by a byte that neither can hold.
func compact(key stream.EntryKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

// key is the EntryKey of a compact one.
func (t table[V]) key(k string) stream.EntryKey {
	key := stream.EntryKey{Collection: t.collection, Name: k}
	if namespace, name, found := strings.Cut(k, "/"); found {
		key.Namespace, key.Name = namespace, name
	}
	return key
}
