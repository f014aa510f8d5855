package jsonlimit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/argomesh/argomesh/stream/jsonlimit"
	"github.com/argomesh/argomesh/test/heap"
)

func TestCheck(t *testing.T) {
	for text, tt := range map[string]struct {
		limits jsonlimit.Limits
		values int
		limit  string
	}{
		``:                                 {values: 0},
		`{}`:                               {values: 1},
		` [ ] `:                            {values: 1},
		`{"a":1,"b":[true,null,"x"]}`:      {values: 6},
		`{"a" : -1.5e3 , "b" : "{[,:\"" }`: {values: 3},
		`"\\"`:                             {values: 1},
		`[1,2,3]`:                          {limits: jsonlimit.Limits{Values: 4, Elements: 3, Depth: 1}, values: 4},
		`[1,2,3,4]`:                        {limits: jsonlimit.Limits{Values: 4}, values: 5, limit: "values"},
		`[[1,2,3],[1,2,3,4]]`:              {limits: jsonlimit.Limits{Elements: 3}, values: 10, limit: "elements"},
		`[[[]]]`:                           {limits: jsonlimit.Limits{Depth: 2}, values: 3, limit: "depth"},
		`{"a":{"b":{}}}`:                   {limits: jsonlimit.Limits{Depth: 2}, values: 3, limit: "depth"},
		`["` + strings.Repeat("x", 100):    {limits: jsonlimit.Limits{Heap: 100}, values: 2, limit: ""},
		`[{},{},{},{}]`:                    {limits: jsonlimit.Limits{Heap: 200}, values: 4, limit: "memory"},
		`]]]}}}[`:                          {values: 1},
	} {
		for _, pieces := range []int{1, 3, len(text) + 1} {
			s := jsonlimit.NewScanner(tt.limits)
			var err error
			for rest := []byte(text); len(rest) > 0 && err == nil; rest = rest[min(pieces, len(rest)):] {
				_, err = s.Write(rest[:min(pieces, len(rest))])
			}
			var e jsonlimit.Error
			if errors.As(err, &e); e.Limit != tt.limit || s.Count().Values != tt.values {
				t.Errorf("%q in pieces of %d: %d values, %v, want %d and the limit %q", text, pieces, s.Count().Values, err, tt.values, tt.limit)
			}
		}
	}
	deep := strings.Repeat("[", jsonlimit.MaxDepth+1)
	if _, err := jsonlimit.Check([]byte(deep), jsonlimit.Limits{}); err == nil {
		t.Errorf("%d levels are taken", len(deep))
	}
}

// shapes are texts that take much memory for their length.
func shapes(n int) map[string][]byte {
	list := func(element string) []byte {
		return []byte("[" + strings.Repeat(element+",", n/(len(element)+1)) + element + "]")
	}
	var keys bytes.Buffer
	keys.WriteString(`{"":0`)
	for i := 0; keys.Len() < n; i++ {
		fmt.Fprintf(&keys, `,"%x":0`, i)
	}
	keys.WriteString("}")
	return map[string][]byte{
		"empty objects": list(`{}`), "empty arrays": list(`[]`), "empty strings": list(`""`), "numbers": list(`1`), "null": list(`null`),
		"objects of one member": list(`{"a":1}`), "objects of nine": list(`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`),
		"arrays of one": list(`[1]`), "nested": list(`{"a":{"a":{"a":[{}]}}}`), "strings": list(`"abcdefgh"`), "keys": keys.Bytes(),
		"strings that are rounded": list(`"` + strings.Repeat("x", 6913) + `"`), "short ones that are rounded": list(`{"a":"` + strings.Repeat("x", 33) + `"}`),
		"long numbers": list(strings.Repeat("1", 129)), "one number": bytes.Repeat([]byte("1"), n),
		"one string": []byte(`"` + strings.Repeat("x", n) + `"`), "escapes": []byte(`["` + strings.Repeat(`\u00e9`, n/6) + `"]`),
		"parameters": list(`{"name":"image.tag","value":"v1.2.3"}`),
		"resources":  list(`{"group":"apps","health":{"status":"Healthy"},"kind":"Deployment","name":"guestbook-ui","namespace":"guestbook","status":"Synced","version":"v1"}`),
	}
}

// What is counted is what the values of the decoder take: never less, and seldom much
// more.
func TestHeapIsThatOfTheDecoder(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for name, text := range shapes(1 << 20) {
		count, err := jsonlimit.Check(text, jsonlimit.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		decoded(t, shapes(10)[name]) // what encoding/json and reflect keep for themselves is there before
		before := heapInUse()
		v := decoded(t, text)
		kept := heapInUse() - before
		runtime.KeepAlive(v)
		if kept > count.Heap {
			t.Errorf("%s: %d bytes of text take %d, and %d are counted", name, len(text), kept, count.Heap)
		}
		if count.Heap > 4*kept+int64(2*len(text)) {
			t.Errorf("%s: %d bytes of text take %d, and %d are counted: too many", name, len(text), kept, count.Heap)
		}
	}
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// heapInUse is what the whole process holds, the runtime's own objects with it: while
// nothing else runs they come to some hundred bytes more or less, as a collection parks
// other goroutines than the one before.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever a text is, it costs nothing to count, and what is valid and within the limits
// is decoded within them.
func FuzzCheck(f *testing.F) {
	for _, text := range shapes(200) {
		f.Add(text)
	}
	f.Add([]byte(`{"a":"\"]}"} [`))
	f.Add([]byte("[\"\xe2\x82"))   // ends within a character
	f.Add([]byte("[\"\xe2\x82\"")) // and this goes on within one
	f.Add([]byte("\xff[[1]]"))
	limits := jsonlimit.Limits{Depth: 64, Heap: 1 << 20}
	f.Fuzz(func(t *testing.T, text []byte) {
		var whole jsonlimit.Count
		var err error
		heap.Bound(t, 0, func() { whole, err = jsonlimit.Check(text, limits) })
		s := jsonlimit.NewScanner(limits)
		var pieceErr error
		for i := 0; i < len(text) && pieceErr == nil; i++ {
			_, pieceErr = s.Write(text[i : i+1])
		}
		if pieceErr == nil {
			pieceErr = s.End()
		}
		if (err == nil) != (pieceErr == nil) {
			t.Fatalf("at once %v; in pieces %v", err, pieceErr)
		}
		if s.Count() != whole && !notUTF8(err) && !notUTF8(pieceErr) {
			t.Fatalf("at once %+v, %v; in pieces %+v, %v", whole, err, s.Count(), pieceErr)
		}
		var v any
		if err != nil || json.Unmarshal(text, &v) != nil {
			return
		}
		values, depth := walk(v)
		if whole.Values < values {
			t.Errorf("%d values are counted of %d", whole.Values, values)
		}
		if depth > limits.Depth {
			t.Errorf("%d levels are taken", depth)
		}
	})
}

// notUTF8 reports whether a text was refused for its encoding. How much was counted before that follows from its
// pieces, since each is looked at before it is counted.
func notUTF8(err error) bool {
	var refused jsonlimit.Error
	return errors.As(err, &refused) && refused.Limit == "encoding"
}

// walk counts what was decoded; of a key that comes twice the last is there.
func walk(v any) (values, depth int) {
	var inner []any
	switch v := v.(type) {
	case map[string]any:
		for _, value := range v {
			inner = append(inner, value)
		}
	case []any:
		inner = v
	default:
		return 1, 0
	}
	values = 1
	for _, value := range inner {
		n, d := walk(value)
		values, depth = values+n, max(depth, d)
	}
	return values, depth + 1
}

// JSON is UTF-8, in however many pieces it comes.
func TestNotUTF8(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":"é€😀","b":"x"}`: true, "\"\xff\"": false, "\"\xc3\"": false, "\"\xc3": false, "\"\xe2\x82\"": false, "\"\xf0\x9f\x98": false,
		"\"\xed\xa0\x80\"": false /* a surrogate */, "\"\xc0\xaf\"": false /* too long a form */, "\xe2\x82\xac": true, "": true,
		"\"\xf0\x9f\x98\x80\xf0\x9f\x98\x80\"": true, "\x80": false,
	} {
		if utf8.ValidString(text) != want {
			t.Fatalf("%q is UTF-8: %t", text, !want)
		}
		_, err := jsonlimit.Check([]byte(text), jsonlimit.Limits{})
		if (err == nil) != want {
			t.Errorf("Check(%q) = %v", text, err)
		}
		for size := 1; size <= len(text); size++ {
			s := jsonlimit.NewScanner(jsonlimit.Limits{})
			var err error
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err = s.Write(rest[:min(size, len(rest))]); err != nil {
					break
				}
			}
			if err == nil {
				err = s.End()
			}
			if (err == nil) != want {
				t.Errorf("%q in pieces of %d: %v", text, size, err)
			}
		}
	}
}
