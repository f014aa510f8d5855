package values

import (
	"errors"
	"iter"
)

// jsonText is a valid JSON text, read in place.
type jsonText []byte

// withMark returns a tree with the mark as the first item of information of each
// resource without a parent. The text is valid JSON. A tree that would become longer than
// maxMarkedBytes, or has its resources twice, is not marked.
func withMark(text, mark []byte) ([]byte, error) {
	tree := jsonText(text)
	if at := tree.space(0); at == len(text) || text[at] != '{' {
		return nil, errUnmarked
	}
	out, copied, found := make([]byte, 0, min(len(text)+len(text)/8, maxMarkedBytes)), 0, false
	put := func(parts ...[]byte) bool {
		for _, part := range parts {
			switch n := len(out) + len(part); {
			case n > maxMarkedBytes:
				return false
			case n > cap(out): // once, and so that out has its room twice at most
				out = append(make([]byte, 0, maxMarkedBytes), out...)
			}
			out = append(out, part...)
		}
		return true
	}
	for m := range tree.members(tree.space(0)) {
		if string(m.name) != "nodes" {
			continue
		}
		if found || text[m.value] != '[' {
			return nil, errUnmarked
		}
		found = true
		for node := range tree.elements(m.value) {
			switch {
			case text[node] == 'n': // null
				continue
			case text[node] != '{':
				return nil, errUnmarked
			}
			at, add, err := tree.markOf(node, mark)
			if err != nil {
				return nil, err
			}
			if !put(text[copied:at], add) {
				return nil, errUnmarked
			}
			copied = at
		}
	}
	if !found || !put(text[copied:]) {
		return nil, errUnmarked
	}
	return out, nil
}

// markOf returns what is to be added to a resource, and where; nothing to one that has a
// parent.
func (t jsonText) markOf(node int, mark []byte) (at int, add []byte, err error) {
	info, members := -1, 0
	for m := range t.members(node) {
		members++
		switch string(m.name) {
		case "parentRefs":
			return node, nil, nil
		case "info":
			info = m.value
		}
	}
	switch {
	case info < 0: // the first member: more may follow
		add = append(append([]byte(`"info":[`), mark...), ']')
		if members > 0 {
			add = append(add, ',')
		}
		return node + 1, add, nil
	case t[info] != '[':
		return 0, nil, errUnmarked
	}
	// First, since of many items few are shown.
	add = append(add, mark...)
	if t[t.space(info+1)] != ']' {
		add = append(add, ',')
	}
	return info + 1, add, nil
}

// member is one of an object: its name as it is written, and where its value begins.
type member struct {
	name  []byte
	value int
}

// members are those of the object that begins there.
func (t jsonText) members(object int) iter.Seq[member] {
	return func(yield func(member) bool) {
		for at := t.space(object + 1); t[at] != '}'; {
			end := t.skip(at)
			m := member{t[at+1 : end-1], t.space(t.space(end) + 1)} // behind the colon
			if !yield(m) {
				return
			}
			if at = t.space(t.skip(m.value)); t[at] == ',' {
				at = t.space(at + 1)
			}
		}
	}
}

// elements are where those of the array begin that begins there.
func (t jsonText) elements(array int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := t.space(array + 1); t[at] != ']'; {
			if !yield(at) {
				return
			}
			if at = t.space(t.skip(at)); t[at] == ',' {
				at = t.space(at + 1)
			}
		}
	}
}

// space returns where something begins at or after at.
func (t jsonText) space(at int) int {
	for at < len(t) && (t[at] == ' ' || t[at] == '\n' || t[at] == '\t' || t[at] == '\r') {
		at++
	}
	return at
}

// skip returns the end of the value that begins there.
func (t jsonText) skip(at int) int {
	for depth := 0; ; {
		switch t[at] {
		case '"':
			for at++; t[at] != '"'; at++ {
				if t[at] == '\\' {
					at++
				}
			}
			at++
		case '{', '[':
			depth++
			at++
		case '}', ']':
			depth--
			at++
		case ',', ':', ' ', '\n', '\t', '\r':
			at++
		default: // a number or a literal
			for at < len(t) && t[at] != ',' && t[at] != '}' && t[at] != ']' && t[at] != ' ' && t[at] != '\n' && t[at] != '\t' &&
				t[at] != '\r' {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
}

// errUnmarked is that a value is no tree that can be marked.
var errUnmarked = errors.New("not a tree to be marked")
