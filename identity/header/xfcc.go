package header

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The limits of one header. Envoy takes 60 KiB of headers in all, and an element
// with a certificate of RSA 4096 has about 4 KiB.
const (
	maxHeaderBytes = 48 << 10
	maxElements    = 16
	maxPairs       = 64 // of one element
	maxKeyBytes    = 32
)

// element is what one proxy says of its client: values by key, in lower case and in
// their order. The keys are by (URIs of the proxy's own certificate); hash (SHA-256
// of the client's, in hexadecimal), cert (the client's, PEM in percent-encoding),
// chain (the same with its intermediates), subject, uri and dns of the client's; and
// what a newer Envoy may add.
type element map[string][]string

// single are the keys that an element has once at most.
var single = []string{"hash", "cert", "chain", "subject"}

// parse reads a header of Envoy's grammar: elements with commas between them, the
// oldest first; in each, pairs of key and value with semicolons between them. A
// value in quotes may contain all of these, and quotes after a backslash.
//
// What the grammar leaves open is refused, for the one who wrote the left part of a
// header may want two readers to disagree: a quote that does not begin and end a
// value, a separator or an equals sign in a value without quotes, two backslashes
// before a quote, a pair given twice, characters that no proxy writes.
func parse(header string) ([]element, error) {
	if len(header) > maxHeaderBytes {
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(header), maxHeaderBytes)
	}
	for i := range len(header) {
		if c := header[i]; c < ' ' || c > '~' {
			return nil, fmt.Errorf("byte %d is not a printable character of ASCII", i)
		}
	}
	var elements []element
	rest := header
	for {
		e, after, err := parseElement(rest)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", len(elements)+1, err)
		}
		if len(elements) == maxElements {
			return nil, fmt.Errorf("has more than %d elements", maxElements)
		}
		elements = append(elements, e)
		if after == "" {
			return elements, nil
		}
		rest = after[1:] // the comma
	}
}

// parseElement reads the first element of text, and returns what comes after it:
// nothing, or a comma and more. Blanks around an element are no part of it: anyone who
// joins two header lines may put them there.
func parseElement(text string) (e element, after string, err error) {
	text = strings.TrimLeft(text, " ")
	e = element{}
	for pairs := 1; ; pairs++ {
		if pairs > maxPairs {
			return nil, "", fmt.Errorf("has more than %d pairs", maxPairs)
		}
		key, value, found := strings.Cut(text, "=")
		if !found {
			return nil, "", errors.New("has a pair without an equals sign")
		}
		if key, err = parseKey(key); err != nil {
			return nil, "", err
		}
		value, text, err = parseValue(value)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", key, err)
		}
		if err := e.add(key, value); err != nil {
			return nil, "", err
		}
		if !strings.HasPrefix(text, ";") {
			return e, text, nil
		}
		text = text[1:]
	}
}

// parseKey returns a key in lower case; case has no meaning in keys.
func parseKey(key string) (string, error) {
	if key == "" || len(key) > maxKeyBytes {
		return "", fmt.Errorf("has a key of %d bytes, 1 to %d are allowed", len(key), maxKeyBytes)
	}
	for i := range len(key) {
		if c := key[i] | 0x20; c < 'a' || c > 'z' {
			return "", errors.New("has a key that is not made of letters")
		}
	}
	return strings.ToLower(key), nil
}

// parseValue reads a value at the beginning of text, and returns what comes after
// it: nothing, or a separator and more.
func parseValue(text string) (value, after string, err error) {
	if strings.HasPrefix(text, `"`) {
		value, after, err = parseQuoted(text[1:])
	} else {
		end := strings.IndexAny(text, ",;")
		if end < 0 {
			end = len(text)
		}
		value, after = text[:end], text[end:]
		if after == "" || after[0] == ',' {
			value = strings.TrimRight(value, " ")
		}
		if strings.ContainsAny(value, `"= `) {
			err = errors.New("a quote, a blank or an equals sign in a value without quotes")
		}
	}
	if err != nil {
		return "", "", err
	}
	if trimmed := strings.TrimLeft(after, " "); trimmed == "" || trimmed[0] == ',' {
		after = trimmed // blanks at the end of an element
	}
	if after != "" && after[0] != ',' && after[0] != ';' {
		return "", "", errors.New("text after the closing quote")
	}
	return value, after, nil
}

// parseQuoted reads up to the closing quote and returns what comes after it.
func parseQuoted(text string) (value, after string, err error) {
	var b strings.Builder
	backslashes := 0 // in a row, before text[i]
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\\':
			backslashes++
			b.WriteByte(c)
			continue
		case c == '"' && backslashes > 1:
			// To Envoy only \" is an escape; to the writer of a distinguished name \\ is
			// one too, and the quote ends the value.
			return "", "", errors.New("two backslashes before a quote")
		case c == '"' && backslashes == 1:
			unescaped := b.String()[:b.Len()-1]
			b.Reset()
			b.WriteString(unescaped)
			b.WriteByte(c)
		case c == '"':
			return b.String(), text[i+1:], nil
		default:
			b.WriteByte(c)
		}
		backslashes = 0
	}
	return "", "", errors.New("a quote that is not closed")
}

// add keeps a pair.
func (e element) add(key, value string) error {
	if len(e[key]) > 0 && slices.Contains(single, key) {
		return fmt.Errorf("%s is given twice", key)
	}
	e[key] = append(e[key], value)
	return nil
}

// all returns the values of key that are not empty: Envoy writes URI= for a
// certificate without one.
func (e element) all(key string) []string {
	return slices.DeleteFunc(slices.Clone(e[key]), func(value string) bool { return value == "" })
}

// first returns the value of a key that is there once at most.
func (e element) first(key string) string {
	if len(e[key]) == 0 {
		return ""
	}
	return e[key][0]
}
