package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NewPlain returns the way to w, a terminal, of all that agentctl prints. Spokes, hubs and callers
// choose some of it, and a terminal obeys more than letters: what it would obey, but for
// the ends of lines and tabs, is written as its number, such as \u001b. In the strings of
// JSON that means the same as before.
func NewPlain(w io.Writer) io.Writer { return &plain{w: w} }

// plain is what NewPlain returns.
type plain struct {
	w    io.Writer
	rest []byte // the begin of a character, whose end has not come
}

// Write implements io.Writer. It says that all was written, or nothing.
func (p *plain) Write(text []byte) (int, error) {
	var out []byte
	left := slices.Concat(p.rest, text)
	for len(left) > 0 && utf8.FullRune(left) {
		r, size := utf8.DecodeRune(left)
		switch {
		case r == utf8.RuneError && size == 1: // some terminals obey single bytes
			out = utf8.AppendRune(out, utf8.RuneError)
		case r != '\n' && r != '\t' && obeyed(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, left[:size]...)
		}
		left = left[size:]
	}
	p.rest = left
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

// beneath returns the writer behind w: for what is itself no text of ours, as an editor,
// or is encoded so that nothing in it is obeyed.
func beneath(w io.Writer) io.Writer {
	if p, ok := w.(*plain); ok {
		return p.w
	}
	return w
}

// obeyed reports whether a terminal does something else with r than to show it: control
// characters, and those that change the order in which others are shown, or begin a line.
func obeyed(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// PlainError returns err with a text of nothing but letters and ends of lines.
func PlainError(err error) error { return plainError{err} }

type plainError struct{ error }

// Error returns the text.
func (e plainError) Error() string {
	var b strings.Builder
	_, _ = (&plain{w: &b}).Write([]byte(e.error.Error())) // of a Builder there is no error
	return b.String()
}

func (e plainError) Unwrap() error { return e.error }

// CleanText returns what someone else wrote as one line, for what is printed among our
// own words.
func CleanText(s string) string { return strings.Join(strings.FieldsFunc(s, obeyed), " ") }

// cleanTree is CleanText for all that is in a value of JSON.
func cleanTree(value any) any {
	switch value := value.(type) {
	case string:
		return CleanText(value)
	case []any:
		for i := range value {
			value[i] = cleanTree(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = cleanTree(value[key])
		}
	}
	return value
}

// ShellWord is value as one word of a shell.
func ShellWord(value string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,", r)
	}
	if value != "" && strings.IndexFunc(value, func(r rune) bool { return !plain(r) }) < 0 {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
