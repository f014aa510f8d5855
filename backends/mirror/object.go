package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// object is a Kubernetes object as generic JSON, with views of the fields the
// rules look at. All that the rules do not know passes through untouched.
type object struct {
	key    stream.ResourceKey
	fields map[string]any
	// storedUID is the UID as the Store keeps it, empty for an object that is not
	// from one. What holds on to it then takes no memory of its own.
	storedUID string
	// found is what was there before the object was adopted, once it was recalled.
	found *found
	// confirmed says that Config.Fence was asked after the object was there.
	confirmed bool
}

// decode keeps numbers as they are written.
func decode(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, fmt.Errorf("null is not an object")
	}
	return fields, nil
}

// encode is our canonical form: keys sorted, no white space.
func encode(v any) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("mirror: " + err.Error()) // v was decoded from JSON or built from strings
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

func parseObject(o backends.Object) (object, error) {
	fields, err := decode(o.Raw)
	if err != nil {
		return object{}, fmt.Errorf("decode %s: %w", o.Key, err)
	}
	return object{key: o.Key, fields: fields, storedUID: o.UID}, nil
}

// shows reports whether o is what stored holds.
func (o object) shows(stored backends.Object) bool {
	return o.key == stored.Key && o.storedUID == stored.UID && o.meta("resourceVersion") == stored.ResourceVersion
}

func (o object) child(path ...string) map[string]any {
	m := o.fields
	for _, name := range path {
		m, _ = m[name].(map[string]any)
	}
	return m
}

// ensure returns the child, made if it is missing.
func (o object) ensure(path ...string) map[string]any {
	m := o.fields
	for _, name := range path {
		next, ok := m[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[name] = next
		}
		m = next
	}
	return m
}

func (o object) meta(name string) string {
	s, _ := o.child("metadata")[name].(string)
	return s
}

func (o object) uid() string {
	if uid := o.meta("uid"); uid != o.storedUID {
		return uid
	}
	return o.storedUID
}

func (o object) deleting() bool { return o.meta("deletionTimestamp") != "" }

// revision is the resourceVersion as the number it is (Kubernetes API concepts,
// "Resource versions": comparable as integers); 0 when it is none.
func (o object) revision() uint64 {
	n, err := strconv.ParseUint(o.meta("resourceVersion"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (o object) annotation(key string) string {
	return stringAt(o.child("metadata", "annotations"), key)
}
func (o object) label(key string) string { return stringAt(o.child("metadata", "labels"), key) }

func (o object) setAnnotation(key, value string) {
	o.ensure("metadata", "annotations")[key] = value
}

// unmark takes away what makes an object a copy.
func (o object) unmark() {
	for _, key := range []string{sourceUIDKey, principalUIDKey, recordKey, hubKey} {
		delete(o.child("metadata", "annotations"), key)
	}
}

func (o object) finalizers() []string {
	list, _ := o.child("metadata")["finalizers"].([]any)
	var out []string
	for _, f := range list {
		if s, ok := f.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func (o object) setFinalizers(finalizers []string) {
	if len(finalizers) == 0 {
		delete(o.ensure("metadata"), "finalizers")
		return
	}
	list := make([]any, len(finalizers))
	for i, f := range finalizers {
		list[i] = f
	}
	o.ensure("metadata")["finalizers"] = list
}

// dropFinalizers removes those that match and reports whether there were any.
func (o object) dropFinalizers(match func(string) bool) bool {
	kept := slices.DeleteFunc(o.finalizers(), match)
	if len(kept) == len(o.finalizers()) {
		return false
	}
	o.setFinalizers(kept)
	return true
}

// cascades reports whether the object is being deleted together with its
// workloads.
func (o object) cascades() bool {
	return o.deleting() && slices.ContainsFunc(o.finalizers(), isCascade)
}

func stringAt(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// mirrored returns the labels or annotations that travel.
func mirrored(m map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		if s, ok := value.(string); ok && mirroredKey(key) {
			out[key] = s
		}
	}
	return out
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// clone copies generic JSON, so that a rule can change it.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = clone(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = clone(value)
		}
		return out
	}
	return v
}

func (o object) clone() object {
	fields, _ := clone(o.fields).(map[string]any)
	return object{key: o.key, fields: fields, storedUID: o.storedUID, found: o.found, confirmed: o.confirmed}
}
