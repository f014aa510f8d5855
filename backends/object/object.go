// Package object has Kubernetes objects as generic JSON, and the keys that Argo CD, argocd-agent
// and we write into them. It is pure.
package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// Object is a Kubernetes object as generic JSON, with views of the fields the
// rules look at. All that the rules do not know passes through untouched.
type Object struct {
	Key    stream.ResourceKey
	Fields map[string]any
	// storedUID is the UID as the Store keeps it, empty for an object that is not
	// from one. What holds on to it then takes no memory of its own.
	storedUID string
	// Found is what was there before the object was adopted, once it was recalled.
	Found *Found
	// Confirmed says that Config.Fence was asked after the object was there.
	Confirmed bool
	// memo is nil for an object that is not from a Store.
	memo *memo
}

// Decode decodes a JSON object and keeps numbers as they are written. It fails for all
// else, null among it.
func Decode(raw []byte) (map[string]any, error) {
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

// Encode writes our canonical form: keys sorted, no white space. v is of what Decode
// returns.
func Encode(v any) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("object: " + err.Error()) // v was decoded from JSON or built from strings
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// StoredBytes is how long raw, JSON of ours or of a peer, is once an API server has encoded it: encoding/json
// writes <, > and & as six bytes, and so the two characters that end a line in JavaScript.
func StoredBytes(raw []byte) int {
	n := len(raw)
	for _, c := range []string{"<", ">", "&"} {
		n += 5 * bytes.Count(raw, []byte(c))
	}
	for _, c := range []string{"\u2028", "\u2029"} {
		n += 3 * bytes.Count(raw, []byte(c))
	}
	return n
}

// Parse decodes an object of a Store. It fails when that is not a JSON object.
func Parse(o backends.Object) (Object, error) {
	fields, err := Decode(o.Raw)
	if err != nil {
		return Object{}, fmt.Errorf("decode %s: %w", o.Key, err)
	}
	return Object{Key: o.Key, Fields: fields, storedUID: o.UID, memo: &memo{}}, nil
}

// Shows reports whether o is what stored holds.
func (o Object) Shows(stored backends.Object) bool {
	return o.Key == stored.Key && o.storedUID == stored.UID && o.Meta("resourceVersion") == stored.ResourceVersion
}

// Child returns the map at the path, nil if there is none. It is not a copy.
func (o Object) Child(path ...string) map[string]any {
	m := o.Fields
	for _, name := range path {
		m, _ = m[name].(map[string]any)
	}
	return m
}

// Ensure returns the map at the path, made if it is missing.
func (o Object) Ensure(path ...string) map[string]any {
	m := o.Fields
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

// Meta returns a field of the metadata that is a string, else an empty string.
func (o Object) Meta(name string) string {
	s, _ := o.Child("metadata")[name].(string)
	return s
}

// UID returns metadata.uid.
func (o Object) UID() string {
	if uid := o.Meta("uid"); uid != o.storedUID {
		return uid
	}
	return o.storedUID
}

// Deleting reports whether someone has asked for the deletion.
func (o Object) Deleting() bool { return o.Meta("deletionTimestamp") != "" }

// Revision is Revision of its resourceVersion.
func (o Object) Revision() uint64 { return Revision(o.Meta("resourceVersion")) }

// Revision is a resourceVersion as the number it is (Kubernetes API concepts, "Resource
// versions": comparable as integers); 0 when it is none.
func Revision(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Annotation returns the value of an annotation, empty if there is none.
func (o Object) Annotation(key string) string {
	return StringAt(o.Child("metadata", "annotations"), key)
}

// Label returns the value of a label, empty if there is none.
func (o Object) Label(key string) string { return StringAt(o.Child("metadata", "labels"), key) }

// SetAnnotation sets an annotation.
func (o Object) SetAnnotation(key, value string) {
	o.Ensure("metadata", "annotations")[key] = value
}

// Unmark takes away what makes an object a copy.
func (o Object) Unmark() {
	for _, key := range []string{SourceUIDKey, PrincipalUIDKey, RecordKey, HubKey} {
		delete(o.Child("metadata", "annotations"), key)
	}
}

// Finalizers returns the finalizers.
func (o Object) Finalizers() []string {
	list, _ := o.Child("metadata")["finalizers"].([]any)
	var out []string
	for _, f := range list {
		if s, ok := f.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// SetFinalizers replaces the finalizers.
func (o Object) SetFinalizers(finalizers []string) {
	if len(finalizers) == 0 {
		delete(o.Ensure("metadata"), "finalizers")
		return
	}
	list := make([]any, len(finalizers))
	for i, f := range finalizers {
		list[i] = f
	}
	o.Ensure("metadata")["finalizers"] = list
}

// DropFinalizers removes the finalizers that match and reports whether there were any.
func (o Object) DropFinalizers(match func(string) bool) bool {
	kept := slices.DeleteFunc(o.Finalizers(), match)
	if len(kept) == len(o.Finalizers()) {
		return false
	}
	o.SetFinalizers(kept)
	return true
}

// Cascades reports whether the object is being deleted together with its workloads.
func (o Object) Cascades() bool {
	return o.Deleting() && slices.ContainsFunc(o.Finalizers(), IsCascade)
}

// StringAt returns m[key] if that is a string, else an empty string.
func StringAt(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// Mirrored returns the labels or annotations that travel.
func Mirrored(m map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		if s, ok := value.(string); ok && mirroredKey(key) {
			out[key] = s
		}
	}
	return out
}

// SortedKeys returns the keys of m in order.
func SortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Clone copies generic JSON.
func Clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = Clone(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = Clone(value)
		}
		return out
	}
	return v
}

// Clone returns a deep copy of the fields; what was found is shared.
func (o Object) Clone() Object {
	fields, _ := Clone(o.Fields).(map[string]any)
	return Object{Key: o.Key, Fields: fields, storedUID: o.storedUID, Found: o.Found, Confirmed: o.Confirmed, memo: o.memo}
}

// memo keeps what was decoded last of an object's text. It is safe for concurrent use.
type memo struct{ last atomic.Pointer[memorized] }

type memorized struct {
	text    string
	decoded any
}

// DecodedOnce returns decode(text), where text is of o, such as the value of an annotation.
// Rules ask for the same text one after the other: for an object of Parse, and for what was
// made from it, text that is the same as the last time is not decoded again. The caller must
// not change what the value refers to.
func DecodedOnce[T any](o Object, text string, decode func(string) T) T {
	kept := o.memo
	if kept == nil {
		kept = &memo{}
	}
	var value T
	known := false
	if last := kept.last.Load(); last != nil && last.text == text {
		value, known = last.decoded.(T)
	}
	if !known {
		value = decode(text)
		kept.last.Store(&memorized{text: text, decoded: value})
	}
	return value
}
