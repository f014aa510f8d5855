// Package schema knows, from the definition of a custom resource, which fields of an
// object an API server keeps. What the definition does not name is dropped when it is
// written, and no one is told: "Field pruning" of the Kubernetes documentation. It is
// a pure function of schema and object, the same as the API server's own.
package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Schema says which fields the objects of one version of a custom resource have. It
// is immutable.
type Schema struct {
	root *field
	id   string
}

// field is the schema of one value. Nil knows no field of it.
type field struct {
	properties map[string]*field
	items      *field
	// others are the properties that have no name of their own, if open.
	others *field
	open   bool
	// preserve keeps what no schema names.
	preserve bool
	// resource says that the value is an object of Kubernetes, whose type and metadata
	// are kept whatever the schema names.
	resource bool
}

// Dropped is a field that is not kept.
type Dropped struct {
	Value any
	in    *location
	name  string
}

// maxPath is the longest path that is written, in bytes: names are of any length.
const maxPath = 256

// Path leads to it from the object, as in spec.sources[].helm. A long one is cut.
func (d Dropped) Path() string {
	places := []*location{{name: d.name}}
	for at := d.in; at != nil; at = at.in {
		places = append(places, at)
	}
	var path strings.Builder
	for _, at := range slices.Backward(places) {
		switch {
		case at.item:
			path.WriteString("[]")
			continue
		case path.Len() > 0:
			path.WriteByte('.')
		}
		if room := max(maxPath-path.Len(), 0); len(at.name) > room {
			return path.String() + strings.ToValidUTF8(at.name[:room], "") + "…"
		}
		path.WriteString(at.name)
	}
	return path.String()
}

// location is what holds a value: a property of another place, or the items of a list in
// it. Paths are written only for what is told: that of each member of an object with a
// long name would be as long as the name.
type location struct {
	in   *location // nil: the whole object
	name string
	item bool
}

// definition is what counts here of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		PreserveUnknownFields bool `json:"preserveUnknownFields"`
		Versions              []struct {
			Name   string `json:"name"`
			Schema struct {
				Root *properties `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// properties is what counts here of JSONSchemaProps.
type properties struct {
	Properties map[string]*properties `json:"properties,omitempty"`
	Items      *properties            `json:"items,omitempty"`
	Additional *additional            `json:"additionalProperties,omitempty"`
	Preserve   bool                   `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	Embedded   bool                   `json:"x-kubernetes-embedded-resource,omitempty"`
}

// additional is either a schema or a truth value, which names no field.
type additional struct{ schema *properties }

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(raw []byte) error {
	var allowed bool
	if json.Unmarshal(raw, &allowed) == nil {
		return nil
	}
	return json.Unmarshal(raw, &a.schema)
}

// MarshalJSON implements json.Marshaler.
func (a *additional) MarshalJSON() ([]byte, error) { return json.Marshal(a.schema) }

// Parse reads the schema of a version from a CustomResourceDefinition as JSON.
func Parse(crd []byte, version string) (*Schema, error) {
	var def definition
	if err := json.Unmarshal(crd, &def); err != nil {
		return nil, fmt.Errorf("parse custom resource definition: %w", err)
	}
	for _, v := range def.Spec.Versions {
		if v.Name != version {
			continue
		}
		if v.Schema.Root == nil {
			return nil, errors.New("the custom resource definition has no schema")
		}
		if def.Spec.PreserveUnknownFields {
			v.Schema.Root = &properties{Preserve: true}
		}
		canonical, err := json.Marshal(v.Schema.Root)
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", version, err)
		}
		sum := sha256.Sum256(canonical)
		root := v.Schema.Root.field()
		root.resource = true
		return &Schema{root: root, id: hex.EncodeToString(sum[:8])}, nil
	}
	return nil, fmt.Errorf("the custom resource definition has no version %s", version)
}

func (p *properties) field() *field {
	if p == nil {
		return nil
	}
	f := &field{items: p.Items.field(), preserve: p.Preserve, resource: p.Embedded}
	if p.Additional != nil {
		f.open, f.others = true, p.Additional.schema.field()
	}
	if len(p.Properties) > 0 {
		f.properties = make(map[string]*field, len(p.Properties))
		for name, child := range p.Properties {
			f.properties[name] = child.field()
		}
	}
	return f
}

// ID is the same for schemas that keep the same fields.
func (s *Schema) ID() string { return s.id }

// Prune takes from object, generic JSON, what is not kept, and returns it, in no
// order. A branch that is not kept is one field.
func (s *Schema) Prune(object map[string]any) []Dropped {
	p := pruner{}
	p.value(nil, object, s.root)
	return p.dropped
}

type pruner struct{ dropped []Dropped }

// value prunes what is in an object or a list, which is kept itself.
func (p *pruner) value(at *location, v any, f *field) {
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			p.property(at, v, name, child, f)
		}
	case []any:
		items := &location{in: at, item: true}
		for _, item := range v {
			switch {
			case f == nil:
				p.value(items, item, nil)
			case f.preserve:
				p.preserved(items, item, f.items)
			default:
				p.value(items, item, f.items)
			}
		}
	}
}

// preserved prunes an item of a list of which unknown fields are kept: what a schema
// names in it is kept as that says, all else as it is.
func (p *pruner) preserved(at *location, v any, f *field) {
	if f == nil {
		return
	}
	open := *f
	open.preserve = true
	p.value(at, v, &open)
}

// property prunes one property of an object.
func (p *pruner) property(at *location, of map[string]any, name string, v any, f *field) {
	var child *field
	named := false
	if f != nil {
		child, named = f.properties[name]
	}
	switch {
	case f != nil && f.resource && isMeta(name):
	case named:
		p.inner(at, name, v, child)
	case f != nil && f.open:
		p.inner(at, name, v, f.others)
	case f != nil && f.preserve:
	default:
		p.dropped = append(slices.Grow(p.dropped, len(of)), Dropped{Value: v, in: at, name: name})
		delete(of, name)
	}
}

// inner prunes a property that is kept. Most have nothing in them.
func (p *pruner) inner(in *location, name string, v any, f *field) {
	switch v.(type) {
	case map[string]any, []any:
		p.value(&location{in: in, name: name}, v, f)
	}
}

func isMeta(name string) bool { return name == "apiVersion" || name == "kind" || name == "metadata" }
