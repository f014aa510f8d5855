package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
)

// leftOut stands for what was taken out.
const leftOut = "(left out)"

// shortest is the shortest value of a Secret that is looked for: shorter ones are words.
const shortest = 6

// patterns are secrets that are known by their form. What is in groups, at the ends, stays.
var patterns = []*regexp.Regexp{
	// A JSON Web Token (RFC 7519): three parts of base64url, of which the first begins with {".
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	// A private key (RFC 7468), also with escaped ends of lines.
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`),
	regexp.MustCompile(`(?s)-{5}BEGIN [A-Z ]*PRIVATE KEY-{5}.*`), // whose end was cut off
	// The user information of a URL (RFC 3986, section 3.2.1).
	regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'@]+(@)`),
	// A header Authorization, and what is called a password, a secret or a token.
	regexp.MustCompile(`(?i)((?:authorization|proxy-authorization)["']?\s*[:=]\s*["']?(?:bearer|basic)?\s*)[^\s"',;]+`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`(?i)((?:passwd|password|secret|token|api[_-]?key|access[_-]?key)["']?\s*[:=]\s*["']?)[^\s"',;&]{3,}`),
}

// Redactor takes secrets out of text. Its zero value knows the forms alone. It is not changed
// while it is used.
type Redactor struct {
	values [][]byte // the longest first, so that none leaves a part of another
}

// NewRedactor returns one that knows these values too, and what base64 makes of them.
func NewRedactor(values [][]byte) *Redactor {
	r := &Redactor{}
	add := func(v []byte) {
		if len(v) >= shortest && !slices.ContainsFunc(r.values, func(has []byte) bool { return bytes.Equal(has, v) }) {
			r.values = append(r.values, v)
		}
	}
	for _, value := range values {
		value = bytes.TrimSpace(value)
		add(value)
		for _, html := range []bool{true, false} {
			add(escaped(value, html))
		}
		add([]byte(base64.StdEncoding.EncodeToString(value)))
		add([]byte(base64.RawURLEncoding.EncodeToString(value)))
		for line := range bytes.Lines(value) { // of a file, as a log would repeat it
			add(bytes.TrimSpace(line))
		}
	}
	slices.SortFunc(r.values, func(a, b []byte) int { return len(b) - len(a) })
	return r
}

// escaped is a value as JSON has it in a text, with or without the characters of HTML as their numbers.
func escaped(value []byte, html bool) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(html)
	if err := encoder.Encode(string(value)); err != nil {
		return nil // unreachable: any text can be encoded
	}
	return bytes.Trim(bytes.TrimSpace(out.Bytes()), `"`)
}

// Redact returns text without secrets.
func (r *Redactor) Redact(text []byte) []byte {
	for _, value := range r.values {
		text = bytes.ReplaceAll(text, value, []byte(leftOut))
	}
	for _, p := range patterns {
		text = p.ReplaceAll(text, []byte("${1}"+leftOut+"${2}")) // a group that there is not is empty
	}
	return text
}
