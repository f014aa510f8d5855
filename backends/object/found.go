package object

// MaxFound is the largest of what is kept of an object, in bytes.
const MaxFound = 256 << 10

// Found is the state of an object before it was adopted: all that a copy could overwrite. As
// JSON it is what package adopted stores.
type Found struct {
	Labels      map[string]any `json:"labels,omitempty"`
	Annotations map[string]any `json:"annotations,omitempty"`
	Finalizers  []string       `json:"finalizers,omitempty"`
	// Content is the spec, or the data of a Secret.
	Content any `json:"content,omitempty"`

	UID           string `json:"-"` // of the object
	StoredUID     string `json:"-"` // of what is kept
	StoredVersion string `json:"-"`
	Lost          bool   `json:"-"` // nothing is kept, or nothing that could be read
}

// FoundOf returns what of o a copy could overwrite.
func FoundOf(o Object) Found {
	return Found{
		Labels: Mirrored(o.Child("metadata", "labels")), Annotations: Mirrored(o.Child("metadata", "annotations")),
		Finalizers: o.Finalizers(), Content: o.Fields[ContentField(o.Key.Kind)],
	}
}

// Read decodes what package adopted stored, and reports whether it could.
func (f *Found) Read(kept string) bool {
	fields, err := Decode([]byte(kept))
	if err != nil {
		return false // someone damaged it
	}
	o := Object{Fields: fields}
	f.Content, f.Labels, f.Annotations = fields["content"], o.Child("labels"), o.Child("annotations")
	list, _ := fields["finalizers"].([]any)
	for _, finalizer := range list {
		if s, ok := finalizer.(string); ok {
			f.Finalizers = append(f.Finalizers, s)
		}
	}
	return true
}
