package masking

import (
	"encoding/json"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/argomesh/argomesh/stream/jsonlimit"
)

// Scope says whether one Secret is meant, or a list.
type Scope bool

// The values of [Scope].
const (
	One  Scope = false
	List Scope = true
)

const (
	// MaxSecret is the longest Secret that is read, as JSON, in bytes. An API server keeps
	// none of more than about half of that.
	MaxSecret = 4 << 20
	// MaxAnswer is the longest list that is read, as JSON, in bytes.
	MaxAnswer = 128 << 20
	// MaxSecrets is the largest number of Secrets in a list.
	MaxSecrets = 5000
	// maxData is what the values of a Secret have together at most, as API servers have it.
	maxData = corev1.MaxSecretSize
)

// decoding is what a Secret may have, since a decoder takes more than the text has.
var decoding = jsonlimit.Limits{Depth: 64, Heap: 4 * MaxSecret}

var (
	// ErrNoSecrets is an answer that is none about Secrets, or not in the form that was
	// asked for. What it says instead is in no error.
	ErrNoSecrets = errors.New("the answer is not one about Secrets")
	// ErrTooMuch is an answer beyond a limit.
	ErrTooMuch = errors.New("the Secrets are more than can be masked at a time")
)

// outline is what is told of one Secret.
type outline struct {
	Name            string                  `json:"name"`
	GenerateName    string                  `json:"generateName,omitempty"`
	Namespace       string                  `json:"namespace,omitempty"`
	UID             string                  `json:"uid,omitempty"`
	ResourceVersion string                  `json:"resourceVersion,omitempty"`
	Created         metav1.Time             `json:"created,omitzero"`
	Deleted         *metav1.Time            `json:"deleted,omitempty"`
	DeletionGrace   *int64                  `json:"deletionGrace,omitempty"`
	Labels          map[string]string       `json:"labels,omitempty"`
	Annotations     []string                `json:"annotations,omitempty"` // keys
	Owners          []metav1.OwnerReference `json:"owners,omitempty"`
	Finalizers      []string                `json:"finalizers,omitempty"`
	Type            string                  `json:"type,omitempty"`
	Immutable       *bool                   `json:"immutable,omitempty"`
	Sizes           map[string]int          `json:"sizes,omitempty"` // of values, in bytes, by key
}

// secret is what is read of a Secret. All else is passed over.
type secret struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name            string                  `json:"name"`
		GenerateName    string                  `json:"generateName"`
		Namespace       string                  `json:"namespace"`
		UID             string                  `json:"uid"`
		ResourceVersion string                  `json:"resourceVersion"`
		Created         metav1.Time             `json:"creationTimestamp"`
		Deleted         *metav1.Time            `json:"deletionTimestamp"`
		DeletionGrace   *int64                  `json:"deletionGracePeriodSeconds"`
		Labels          map[string]string       `json:"labels"`
		Annotations     map[string]unread       `json:"annotations"`
		Owners          []metav1.OwnerReference `json:"ownerReferences"`
		Finalizers      []string                `json:"finalizers"`
	} `json:"metadata"`
	Type      string          `json:"type"`
	Immutable *bool           `json:"immutable"`
	Data      map[string]size `json:"data"`
}

// unread is a value of which nothing is kept.
type unread struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*unread) UnmarshalJSON([]byte) error { return nil }

// size is how many bytes a value in base64 has. Of the value nothing is kept.
type size int

// UnmarshalJSON implements json.Unmarshaler.
func (s *size) UnmarshalJSON(raw []byte) error {
	*s = 0
	if string(raw) == "null" {
		return nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return ErrNoSecrets
	}
	padding := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '=':
			padding++
		case padding > 0, !inBase64(c):
			return ErrNoSecrets
		}
	}
	if len(text)%4 != 0 || padding > 2 {
		return ErrNoSecrets
	}
	*s = size(len(text)/4*3 - padding)
	return nil
}

func inBase64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

// outlineOf returns what is told of a Secret, as JSON. One in a list need not say what it
// is.
func outlineOf(text []byte, scope Scope) (*outline, error) {
	if _, err := jsonlimit.Check(text, decoding); err != nil {
		return nil, ErrTooMuch
	}
	var s secret
	// Its keys are compared with their case, as API servers do.
	if err := utiljson.Unmarshal(text, &s); err != nil {
		return nil, ErrNoSecrets // the decoder's error may quote
	}
	anonymous := scope == List && s.Kind == "" && s.APIVersion == ""
	if !anonymous && (s.Kind != "Secret" || s.APIVersion != "v1") {
		return nil, ErrNoSecrets
	}
	m := s.Metadata
	o := &outline{
		Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Created: m.Created, Deleted: m.Deleted, DeletionGrace: m.DeletionGrace, Labels: m.Labels, Owners: m.Owners,
		Finalizers: m.Finalizers,
		Type:       s.Type, Immutable: s.Immutable,
	}
	for key := range m.Annotations {
		if key != corev1.LastAppliedConfigAnnotation && key != Annotation {
			o.Annotations = append(o.Annotations, key)
		}
	}
	slices.Sort(o.Annotations)
	if len(s.Data) > 0 {
		o.Sizes = make(map[string]int, len(s.Data))
	}
	for key, n := range s.Data {
		o.Sizes[key] = int(n)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	return o, nil
}

// check refuses what no API server has.
func (o *outline) check() error {
	if o.Name == "" {
		return ErrNoSecrets
	}
	sum := 0
	for _, n := range o.Sizes {
		if n < 0 || n > maxData {
			return ErrNoSecrets
		}
		if sum += n; sum > maxData {
			return ErrNoSecrets
		}
	}
	return nil
}
