// Package jsonlimit says what a JSON text costs before it is decoded: how many values it
// has, how deep they are, and about how many bytes of memory they take as the generic
// values of encoding/json. It counts what stands between the strings, needs no memory
// for it, and leaves to the decoder whether the text is valid, but for UTF-8, which JSON has
// to be (RFC 8259, section 8.1): a decoder puts three bytes in place of each that is none.
//
//	if _, err := jsonlimit.Check(data, jsonlimit.Limits{Depth: 128, Heap: 16 << 20}); err != nil {
//		return err // names the limit
//	}
//	err := json.Unmarshal(data, &v)
package jsonlimit

import (
	"fmt"
	"unicode/utf8"
)

// MaxDepth is the greatest Limits.Depth.
const MaxDepth = 256

// Limits are what a text may have. Zero means no limit, but for Depth, where it means
// MaxDepth.
type Limits struct {
	Depth    int
	Values   int   // objects, arrays, strings, numbers and literals, without keys
	Elements int   // of any one array
	Heap     int64 // bytes; see Count.Heap
}

// Count is what was counted.
type Count struct {
	Values int
	// Heap is how many bytes the values take when encoding/json decodes them into any,
	// numbers as they are written; an upper bound that is seldom twice as much.
	Heap int64
}

// Error says which limit a text exceeds.
type Error struct {
	Limit string // "values", "depth", "elements", "memory" or "encoding"
	Most  int64
}

func (e Error) Error() string {
	if e.Limit == notUTF8 {
		return "JSON is not UTF-8"
	}
	if e.Limit == "memory" {
		return fmt.Sprintf("JSON takes more than %d MiB of memory once it is decoded", e.Most>>20)
	}
	return fmt.Sprintf("JSON has more than %d %s", e.Most,
		map[string]string{"values": "values", "depth": "levels", "elements": "elements in one array"}[e.Limit])
}

const notUTF8 = "encoding"

// Check counts a whole text.
func Check(text []byte, l Limits) (Count, error) {
	s := NewScanner(l)
	_, err := s.Write(text)
	if err == nil {
		err = s.End()
	}
	return s.Count(), err
}

// pieces finds in a text that comes in pieces what is not UTF-8.
type pieces struct {
	partial [utf8.UTFMax]byte // the begin of a character
	n       int
}

// valid reports whether p, after what came before, may be UTF-8: what p ends with may be the begin of a character.
func (t *pieces) valid(p []byte) bool {
	for t.n > 0 && len(p) > 0 {
		t.partial[t.n] = p[0]
		t.n, p = t.n+1, p[1:]
		if !utf8.FullRune(t.partial[:t.n]) {
			continue
		}
		if r, size := utf8.DecodeRune(t.partial[:t.n]); r == utf8.RuneError && size == 1 {
			return false
		}
		t.n = 0
	}
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if c := p[len(p)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-back:]) {
				t.n = copy(t.partial[:], p[len(p)-back:])
				p = p[:len(p)-back]
			}
			break
		}
	}
	return utf8.Valid(p)
}

// Scanner counts a text that comes in pieces.
type Scanner struct {
	limits Limits
	count  Count
	err    error
	runes  pieces

	quoted, escaped bool
	length          int64 // of the string that is open, with its closing quote
	word            bool  // in a number or a literal
	depth           int
	arrays          [MaxDepth]bool // of what is open, which are arrays
	inner           [MaxDepth]int  // how many elements, or members, each has so far
}

// NewScanner returns a Scanner of one text.
func NewScanner(l Limits) *Scanner {
	if l.Depth == 0 || l.Depth > MaxDepth {
		l.Depth = MaxDepth
	}
	return &Scanner{limits: l}
}

// End is to be called after the last piece. The error is that of Write, or that the text ends
// within a character.
func (s *Scanner) End() error {
	if s.err == nil && s.runes.n > 0 {
		s.err = Error{Limit: notUTF8}
	}
	return s.err
}

// Count is what was counted so far.
func (s *Scanner) Count() Count { return s.count }

// What the values of encoding/json take on a machine of 64 bits, in bytes, while nothing
// is collected of what a map or a slice outgrows.
const (
	headerBytes  = 16  // of a string, which an interface points to; that of a key is in its map
	roundedBytes = 16  // rounding of a string, however short
	objectBytes  = 48  // a map that is empty
	groupBytes   = 288 // the places of its first groupMembers
	groupMembers = 8
	memberBytes  = 96 // each place after them
	arrayBytes   = 24
	elementBytes = 40 // a place in a slice
)

// rounding is how much more than n bytes the heap takes for a string of n, at most: its
// classes of size are less than a fifth apart up to 32 KiB, and pages of 8 KiB from there.
func rounding(n int64) int64 {
	if n == 0 {
		return 0
	}
	return roundedBytes + min(n/5, 8<<10)
}

// Write counts a piece. The error is an Error, and is that of every Write after it.
func (s *Scanner) Write(p []byte) (int, error) {
	if s.err == nil && !s.runes.valid(p) {
		s.err = Error{Limit: notUTF8}
	}
	for i := 0; i < len(p) && s.err == nil; i++ {
		switch c := p[i]; {
		case s.quoted && !s.escaped && c != '"' && c != '\\':
			n := plain(p[i:])
			s.count.Heap += int64(n)
			s.length += int64(n)
			i += n - 1
		case s.quoted:
			s.count.Heap++
			s.length++
			switch {
			case s.escaped:
				s.escaped = false
			case c == '\\':
				s.escaped = true
			case c == '"':
				s.quoted = false
				s.count.Heap += rounding(s.length - 1)
			}
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			s.word = false
		default:
			s.scan(c)
		}
	}
	if s.err != nil {
		return 0, s.err
	}
	return len(p), nil
}

// plain is how many bytes at the beginning of p are a string's text: neither its end nor
// an escape.
func plain(p []byte) int {
	for i, c := range p {
		if c == '"' || c == '\\' {
			return i
		}
	}
	return len(p)
}

// scan counts a character that is neither in a string nor white space.
func (s *Scanner) scan(c byte) {
	switch c {
	case '}', ']':
		s.word = false
		s.depth = max(s.depth-1, 0)
		return
	case ',':
		s.word = false
		return
	case ':': // what was counted as a value was a key
		s.word = false
		s.count.Values--
		s.count.Heap -= headerBytes
		s.member()
		return
	}
	if s.word {
		s.count.Heap += 2 // with its rounding
		return            // the rest of a number or a literal
	}
	s.value(c)
	switch {
	case s.count.Values > s.limits.Values && s.limits.Values > 0:
		s.err = Error{"values", int64(s.limits.Values)}
	case s.count.Heap > s.limits.Heap && s.limits.Heap > 0:
		s.err = Error{"memory", s.limits.Heap}
	}
}

// member counts a place in the object that is open.
func (s *Scanner) member() {
	if s.depth == 0 || s.arrays[s.depth-1] {
		return // the text is not valid
	}
	n := &s.inner[s.depth-1]
	switch *n++; {
	case *n == 1:
		s.count.Heap += groupBytes
	case *n > groupMembers:
		s.count.Heap += memberBytes
	}
}

// value counts the beginning of a value, or of a key.
func (s *Scanner) value(c byte) {
	s.count.Values++
	if s.depth > 0 {
		if in := s.depth - 1; s.arrays[in] {
			s.count.Heap += elementBytes
			if s.inner[in]++; s.inner[in] > s.limits.Elements && s.limits.Elements > 0 {
				s.err = Error{"elements", int64(s.limits.Elements)}
			}
		}
	}
	switch c {
	case '{', '[':
		if s.depth == s.limits.Depth {
			s.err = Error{"depth", int64(s.limits.Depth)}
			return
		}
		s.arrays[s.depth], s.inner[s.depth] = c == '[', 0
		s.depth++
		if s.count.Heap += objectBytes; c == '[' {
			s.count.Heap += arrayBytes - objectBytes
		}
	case '"':
		s.quoted, s.length = true, 0
		s.count.Heap += headerBytes
	default:
		s.word = true
		s.count.Heap += headerBytes + roundedBytes
	}
}
