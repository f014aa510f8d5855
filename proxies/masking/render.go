package masking

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Annotation is on each masked Secret. It says how long the values are.
const Annotation = "argomesh.io/masked"

// hidden stands for the value of an annotation.
const hidden = "masked"

// maxListed is how many keys Annotation names.
const maxListed = 64

// Render returns the outlines in a form other than Outlined, and how many bytes that has.
// What has more than most is refused with ErrTooMuch. The ages of a Table are those of now.
// The reader holds one Secret at a time, without its asterisks.
func (o *Outlines) Render(form Form, most int64, now time.Time) (io.ReadCloser, int64, error) {
	var length int64
	for piece, err := range o.pieces(form, now) {
		if err != nil {
			return nil, 0, err
		}
		if length += int64(len(piece.text)) + piece.masked(); length > most {
			return nil, 0, ErrTooMuch
		}
	}
	next, stop := iter.Pull2(o.pieces(form, now))
	return &rendering{next: next, stop: stop}, length, nil
}

// piece is text, and behind it base64 of so many asterisks.
type piece struct {
	text  []byte
	stars int
}

// masked is how many bytes the base64 has.
func (p piece) masked() int64 { return (int64(p.stars) + 2) / 3 * 4 }

// rendering reads pieces.
type rendering struct {
	next    func() (piece, error, bool)
	stop    func()
	current piece
	read    int64 // of current
}

// The base64 of asterisks: of many, of one, and of two at its end.
const (
	oneStar  = "Kg=="
	twoStars = "Kio="
)

var manyStars = strings.Repeat("Kioq", 1024)

func (r *rendering) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		text := int64(len(r.current.text))
		switch {
		case r.read < text:
			copied := copy(p[n:], r.current.text[r.read:])
			n, r.read = n+copied, r.read+int64(copied)
		case r.read < text+r.current.masked():
			copied := r.current.copyStars(p[n:], r.read-text)
			n, r.read = n+copied, r.read+int64(copied)
		default:
			next, err, more := r.next()
			if err != nil {
				return n, err
			}
			if !more {
				if n == 0 {
					return 0, io.EOF
				}
				return n, nil
			}
			r.current, r.read = next, 0
		}
	}
	return n, nil
}

// Close ends the reading.
func (r *rendering) Close() error {
	r.stop()
	return nil
}

// copyStars copies what it can of the base64, from one of its bytes on.
func (p piece) copyStars(to []byte, from int64) int {
	whole := int64(p.stars/3) * 4
	switch {
	case from < whole:
		return copy(to, manyStars[from%4:min(int64(len(manyStars)), from%4+whole-from)])
	case p.stars%3 == 1:
		return copy(to, oneStar[from-whole:])
	}
	return copy(to, twoStars[from-whole:])
}

// pieces yields the answer in a form.
func (o *Outlines) pieces(form Form, now time.Time) iter.Seq2[piece, error] {
	return func(yield func(piece, error) bool) {
		head, tail, err := o.frame(form)
		if err != nil || !yield(piece{text: head}, nil) {
			if err != nil {
				yield(piece{}, err)
			}
			return
		}
		first := true
		for one, err := range o.each() {
			var all []piece
			if err == nil {
				all, err = one.pieces(form, o.scope, now)
			}
			if err != nil {
				yield(piece{}, err)
				return
			}
			if !first {
				all[0].text = append([]byte(","), all[0].text...)
			}
			first = false
			for _, p := range all {
				if !yield(p, nil) {
					return
				}
			}
		}
		yield(piece{text: tail}, nil)
	}
}

// columns are those of an API server for Secrets.
var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the Secret."},
	{Name: "Type", Type: "string", Description: "Type of the Secret."},
	{Name: "Data", Type: "string", Description: "Number of keys of the Secret."},
	{Name: "Age", Type: "string", Description: "Time since the Secret was made."},
}

// frame is what stands around the Secrets.
func (o *Outlines) frame(form Form) (head, tail []byte, err error) {
	frame := struct {
		metav1.TypeMeta   `json:",inline"`
		Metadata          metav1.ListMeta                `json:"metadata"`
		ColumnDefinitions []metav1.TableColumnDefinition `json:"columnDefinitions,omitempty"`
	}{Metadata: metav1.ListMeta{ResourceVersion: o.meta.ResourceVersion, Continue: o.meta.Continue,
		RemainingItemCount: o.meta.Remaining}}
	items := "items"
	switch form {
	case Table, BareTable, FullTable:
		frame.TypeMeta = metav1.TypeMeta{Kind: "Table", APIVersion: metaGroup + "/v1"}
		frame.ColumnDefinitions, items = columns, "rows"
	case Metadata:
		frame.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: metaGroup + "/v1"}
	case Plain:
		frame.TypeMeta = metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}
	case NoForm, Outlined:
		return nil, nil, fmt.Errorf("masking: form %d is not rendered", form)
	}
	if o.scope == One && items == "items" {
		return nil, nil, nil
	}
	head, err = json.Marshal(frame)
	if err != nil {
		return nil, nil, err
	}
	return append(bytes.TrimSuffix(head, []byte("}")), `,"`+items+`":[`...), []byte("]}"), nil
}

// pieces are those of one Secret in a form.
func (o *outline) pieces(form Form, scope Scope, now time.Time) ([]piece, error) {
	switch form {
	case Metadata:
		return o.metadata()
	case Plain:
		return o.secret(scope == One)
	case NoForm, Outlined, Table, BareTable, FullTable:
	}
	cells, err := json.Marshal([]any{o.Name, o.Type, len(o.Sizes), o.age(now)})
	if err != nil {
		return nil, err
	}
	row := append([]byte(`{"cells":`), cells...)
	var object []piece
	switch form {
	case Table:
		object, err = o.metadata()
	case FullTable:
		object, err = o.secret(true)
	case NoForm, Plain, Outlined, Metadata, BareTable:
	}
	if err != nil {
		return nil, err
	}
	if len(object) == 0 {
		return []piece{{text: append(row, '}')}}, nil
	}
	object[0].text = append(append(row, `,"object":`...), object[0].text...)
	return append(object, piece{text: []byte("}")}), nil
}

// age is how kubectl prints it.
func (o *outline) age(now time.Time) string {
	if o.Created.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(o.Created.Time))
}

// metadata is the Secret's PartialObjectMetadata.
func (o *outline) metadata() ([]piece, error) {
	text, err := json.Marshal(metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metaGroup + "/v1"}, ObjectMeta: o.objectMeta(),
	})
	return []piece{{text: text}}, err
}

// secret is the Secret, which says what it is where it does not stand in a list.
func (o *outline) secret(named bool) ([]piece, error) {
	object := struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Immutable       *bool             `json:"immutable,omitempty"`
		Type            string            `json:"type,omitempty"`
	}{Metadata: o.objectMeta(), Immutable: o.Immutable, Type: o.Type}
	if named {
		object.TypeMeta = metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}
	}
	text, err := json.Marshal(object)
	if err != nil || len(o.Sizes) == 0 {
		return []piece{{text: text}}, err
	}
	text = append(bytes.TrimSuffix(text, []byte("}")), `,"data":{`...)
	var out []piece
	for i, key := range slices.Sorted(maps.Keys(o.Sizes)) {
		quoted, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = []byte(`",`)
		}
		text = append(append(text, quoted...), `:"`...)
		out = append(out, piece{text: text, stars: o.Sizes[key]})
	}
	return append(out, piece{text: []byte(`"}}`)}), nil
}

func (o *outline) objectMeta() metav1.ObjectMeta {
	annotations := make(map[string]string, len(o.Annotations)+1)
	for _, key := range o.Annotations {
		annotations[key] = hidden
	}
	annotations[Annotation] = o.sizesText()
	return metav1.ObjectMeta{
		Name: o.Name, GenerateName: o.GenerateName, Namespace: o.Namespace, UID: types.UID(o.UID),
		ResourceVersion:   o.ResourceVersion,
		CreationTimestamp: o.Created, DeletionTimestamp: o.Deleted, DeletionGracePeriodSeconds: o.DeletionGrace,
		Labels: o.Labels, Annotations: annotations, OwnerReferences: o.Owners, Finalizers: o.Finalizers,
	}
}

// sizesText lists the keys and the sizes of their values, for who sees no values at all, as in
// Argo CD's UI.
func (o *outline) sizesText() string {
	if len(o.Sizes) == 0 {
		return "no keys"
	}
	keys := slices.Sorted(maps.Keys(o.Sizes))
	var words []string
	for _, key := range keys[:min(len(keys), maxListed)] {
		words = append(words, fmt.Sprintf("%s: %d bytes", key, o.Sizes[key]))
	}
	if more := len(keys) - maxListed; more > 0 {
		words = append(words, fmt.Sprintf("and %d keys more", more))
	}
	return strings.Join(words, ", ")
}
