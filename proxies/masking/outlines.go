package masking

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/argomesh/argomesh/stream/jsonlimit"
)

// MediaType is that of outlines as [Outlines.Bytes] has them. No API server knows it: who
// asks through an agent of a release that does not either gets 406, and no Secret.
const MediaType = "application/vnd.argomesh.secret-outlines.v1"

// The longest outlines, in bytes.
const (
	MaxOutline  = 1 << 20
	MaxOutlines = 4 << 20
)

// Most returns the longest outlines of a scope, in bytes.
func Most(scope Scope) int {
	if scope == List {
		return MaxOutlines
	}
	return MaxOutline
}

// Outlines are what is told of one Secret or of a list of them. They are not changed once
// made.
type Outlines struct {
	scope Scope
	meta  listMeta
	lines []byte // one outline each, as JSON
}

// listMeta is what a list says of itself.
type listMeta struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Continue        string `json:"continue,omitempty"`
	Remaining       *int64 `json:"remainingItemCount,omitempty"`
}

// Bytes are the outlines as an agent sends them: what the list says of itself, and each
// outline, in a line of JSON each. Of one Secret it is one line.
func (o *Outlines) Bytes() ([]byte, error) {
	if o.scope == One {
		return o.lines, nil
	}
	head, err := json.Marshal(o.meta)
	if err != nil {
		return nil, err
	}
	return append(append(head, '\n'), o.lines...), nil
}

// Size is how many bytes the outlines take.
func (o *Outlines) Size() int { return len(o.lines) }

// Parse reads what Bytes has written. It refuses whatever else there is in it: a Secret is
// no outline.
func Parse(text []byte, scope Scope) (*Outlines, error) {
	if len(text) > Most(scope) {
		return nil, ErrTooMuch
	}
	o := &Outlines{scope: scope, lines: text}
	if scope == List {
		head, rest, found := bytes.Cut(text, []byte("\n"))
		if !found {
			return nil, ErrNoSecrets
		}
		if err := strictly(head, &o.meta); err != nil {
			return nil, err
		}
		o.lines = rest
	}
	count := 0
	for _, err := range o.each() {
		if err != nil {
			return nil, err
		}
		count++
	}
	switch {
	case count > MaxSecrets:
		return nil, ErrTooMuch
	case scope == One && count != 1:
		return nil, ErrNoSecrets
	}
	return o, nil
}

// each yields the outlines, one after the other in memory.
func (o *Outlines) each() iter.Seq2[*outline, error] {
	return func(yield func(*outline, error) bool) {
		for rest := o.lines; len(rest) > 0; {
			line, after, found := bytes.Cut(rest, []byte("\n"))
			rest = after
			var one outline
			err := strictly(line, &one)
			if err == nil {
				err = one.check()
			}
			if err == nil && !found {
				err = ErrNoSecrets // its end is missing
			}
			if !yield(&one, err) || err != nil {
				return
			}
		}
	}
}

// strictly decodes JSON that has no other fields.
func strictly(text []byte, into any) error {
	if _, err := jsonlimit.Check(text, decoding); err != nil {
		return ErrTooMuch
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(into) != nil || len(bytes.TrimSpace(text[d.InputOffset():])) > 0 {
		return ErrNoSecrets // the decoder's error may quote
	}
	return nil
}

// Read returns the outlines of what an API server answered, a Secret or a SecretList as
// JSON. It holds no more than one Secret at a time. The errors are ErrNoSecrets,
// ErrTooMuch or that of r.
func Read(r io.Reader, scope Scope) (*Outlines, error) {
	in := &budget{Reader: r, left: MaxAnswer, piece: MaxSecret}
	out := &Outlines{scope: scope}
	if scope == One {
		text, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		if err := out.add(text); err != nil {
			return nil, err
		}
		return out, nil
	}
	err := out.readList(json.NewDecoder(in), in)
	if in.failed != nil { // the decoder takes it for the end of the text, or wraps it
		return nil, in.failed
	}
	return out, err
}

// add adds the outline of a Secret.
func (o *Outlines) add(text []byte) error {
	one, err := outlineOf(text, o.scope)
	if err != nil {
		return err
	}
	line, err := json.Marshal(one)
	if err != nil {
		return ErrNoSecrets
	}
	if len(o.lines)+len(line)+1 > Most(o.scope)-maxHead {
		return ErrTooMuch
	}
	o.lines = append(append(o.lines, line...), '\n')
	return nil
}

// maxHead is the longest line about a list itself, in bytes.
const maxHead = 64 << 10

// readList reads a list, whatever the order of its fields.
func (o *Outlines) readList(d *json.Decoder, in *budget) error {
	var kind, version string
	if !delim(d, '{') {
		return ErrNoSecrets
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ErrNoSecrets
		}
		switch key {
		case "kind":
			err = d.Decode(&kind)
		case "apiVersion":
			err = d.Decode(&version)
		case "metadata":
			err = o.readMeta(d)
		case "items":
			err = o.readItems(d, in)
		default:
			err = ErrNoSecrets
		}
		switch err {
		case nil:
		case ErrTooMuch: //nolint:errorlint // ours, as it is
			return err
		default:
			return ErrNoSecrets
		}
	}
	if !delim(d, '}') || kind != "SecretList" || version != "v1" {
		return ErrNoSecrets
	}
	if _, err := d.Token(); err != io.EOF {
		return ErrNoSecrets
	}
	return nil
}

func (o *Outlines) readMeta(d *json.Decoder) error {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return err
	}
	if len(raw) > maxHead/2 { // escaped it may take more
		return ErrTooMuch
	}
	return utiljson.Unmarshal(raw, &o.meta)
}

func (o *Outlines) readItems(d *json.Decoder, in *budget) error {
	opened, err := d.Token()
	if opened == nil && err == nil {
		return nil // null: an empty list of Go
	}
	if opened != json.Delim('[') {
		return ErrNoSecrets
	}
	var raw json.RawMessage
	for count := 0; d.More(); count++ {
		if count == MaxSecrets {
			return ErrTooMuch
		}
		in.piece = MaxSecret
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := o.add(raw); err != nil {
			return err
		}
	}
	if !delim(d, ']') {
		return ErrNoSecrets
	}
	return nil
}

func delim(d *json.Decoder, want json.Delim) bool {
	got, err := d.Token()
	return err == nil && got == want
}

// budget bounds what is read, in all and of the piece under way.
type budget struct {
	io.Reader
	left, piece int
	failed      error
}

func (b *budget) Read(p []byte) (int, error) {
	most := min(b.left, b.piece)
	if most <= 0 {
		b.failed = ErrTooMuch
		return 0, b.failed
	}
	n, err := b.Reader.Read(p[:min(len(p), most)])
	b.left -= n
	b.piece -= n
	if err != nil && err != io.EOF {
		b.failed = err
	}
	return n, err
}
