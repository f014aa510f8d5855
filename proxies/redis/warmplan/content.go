package warmplan

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"hash/maphash"
	"io"
)

// contentSeed is of this process: sums are compared with each other, and go nowhere.
var contentSeed = maphash.MakeSeed()

// ContentOf returns a sum of what an Application, as JSON, says of its resources: its
// status.resources, status.health and status.summary, and not when that was compared. It
// changes with them, and means nothing to another process. What cannot be read has the sum of nothing.
func ContentOf(application []byte) uint64 {
	var view struct {
		Status struct {
			Resources json.RawMessage `json:"resources"`
			Health    json.RawMessage `json:"health"`
			Summary   json.RawMessage `json:"summary"`
		} `json:"status"`
	}
	_ = json.Unmarshal(application, &view) // see above
	var sum maphash.Hash
	sum.SetSeed(contentSeed)
	for _, part := range []json.RawMessage{view.Status.Resources, view.Status.Health, view.Status.Summary} {
		_, _ = sum.Write(part)    // it has no error to return
		_ = sum.WriteByte('\x00') // as above; JSON has no such byte
	}
	return sum.Sum64()
}

// shardsName is the field of the first part of a tree that says how many there are.
const shardsName = "shardsCount"

// ShardsOf returns in how many parts a tree is kept, by its first one, at most maxShards; 1
// when it does not say. The value is gone through byte by byte: it may be long once it
// is unpacked, and its texts as well. It was measured before.
func ShardsOf(value []byte, compressed bool) int {
	text := io.Reader(bytes.NewReader(value))
	if compressed {
		unpacked, err := gzip.NewReader(text)
		if err != nil {
			return 1
		}
		text = unpacked
	}
	var s shardScanner
	for r := bufio.NewReader(text); !s.found; {
		c, err := r.ReadByte()
		if err != nil {
			break
		}
		s.scan(c)
	}
	return max(s.shards, 1)
}

// shardScanner finds the number of shards in a tree.
type shardScanner struct {
	depth         int
	text, escaped bool   // within a string, and behind a backslash there
	last          []byte // the last string of the outermost object, or its begin
	reading       bool   // the number
	found         bool   // its end
	shards        int
}

// scan takes in one byte of the text.
func (s *shardScanner) scan(c byte) {
	switch {
	case s.text:
		s.inText(c)
	case c == '"':
		s.text, s.last = true, s.last[:0]
	case c == '{' || c == '[':
		s.depth++
	case s.reading && (c == ',' || c == '}'):
		s.found = true
	case c == '}' || c == ']':
		s.depth--
	case c == ':':
		s.reading = s.depth == 1 && string(s.last) == shardsName
	case s.reading && c >= '0' && c <= '9':
		s.shards = min(10*s.shards+int(c-'0'), maxShards)
	}
}

// inText scans a byte of a string.
func (s *shardScanner) inText(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.text = false
		return
	}
	if s.depth == 1 && len(s.last) <= len(shardsName) {
		s.last = append(s.last, c)
	}
}
