package replies

import (
	"bytes"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/test/heap"
)

// What a store holds may be anything: it is a reply of its key, or none.
func FuzzDecodeReply(f *testing.F) {
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		f.Fatal(err)
	}
	whole, err := (&reply{
		key: Key{Agent: name, UID: "1", Path: "/version", accept: "application/json"},
		at:  time.Unix(1, 0).UTC(), kind: "application/json", etag: `"x"`, length: 3, packed: []byte("abc"),
	}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, value []byte) {
		var first *reply
		var err error
		heap.Bound(t, len(value), func() { first, err = decodeReply(value) })
		if err != nil {
			return
		}
		text, err := first.encode()
		if err != nil {
			return // a year that JSON has no form for
		}
		second, err := decodeReply(text)
		if err != nil || second.key != first.key || second.length != first.length || !bytes.Equal(second.packed, first.packed) || !second.at.Equal(first.at) {
			t.Fatalf("%+v became %+v, %v", first, second, err)
		}
	})
}
