//go:build linux

package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// body is the content of an Application, or a child, that is another one with each version
// and has about size bytes, most of which compress to nothing.
func body(version, size int) []byte {
	return fmt.Appendf(nil, `{"annotations":{"version":"%[1]d"},"labels":{},`+
		`"spec":{"destination":{"namespace":"default","server":"https://kubernetes.default.svc"},`+
		`"project":"open","source":{"path":"%[1]d-%[2]s","repoURL":"https://git.example.com/r.git"}},`+
		`"status":{"reconciledAt":"%[3]s","sync":{"revision":"%[1]d","status":"Synced"}}}`, version, strings.Repeat("a", size), clock(version))
}

// statusBody is the same of a status.
func statusBody(version, size int) []byte {
	return fmt.Appendf(nil, `{"annotations":{},"labels":{},"spec":{"destination":{},"project":"open","source":{"path":"."}},`+
		`"status":{"reconciledAt":"%[3]s","sync":{"revision":"%[1]d-%[2]s","status":"Synced"}}}`, version, strings.Repeat("a", size), clock(version))
}

// clock is another time with each version.
func clock(version int) string {
	return time.Unix(int64(1700000000+version), 0).UTC().Format(time.RFC3339)
}

// projectBody is the content of an AppProject that admits everything.
func projectBody(version, size int) []byte {
	return fmt.Appendf(nil, `{"annotations":{"version":"%d"},"labels":{},"spec":{"clusterResourceWhitelist":[{"group":"*","kind":"*"}],`+
		`"destinations":[{"namespace":"*","server":"*"}],"sourceRepos":["*","%s"]}}`, version, strings.Repeat("a", size))
}

// dear is the content of an AppProject whose patterns cost as much as patterns can.
func dear(version int) []byte {
	one := fmt.Sprintf(`"%s%d"`, strings.Repeat("*a", 120), version)
	return fmt.Appendf(nil, `{"annotations":{},"labels":{},"spec":{"destinations":[{"namespace":"*","server":"*"}],"sourceRepos":[%s%s]}}`,
		strings.Repeat(one+",", 200), one)
}

// crowded is the content of an AppProject with as many entries, no two of which are the same, as an event has room for.
func crowded(version int) []byte {
	const each = 12_000
	list := func(one string) string {
		entries := make([]string, each)
		for i := range entries {
			entries[i] = fmt.Sprintf(one, version*each+i)
		}
		return strings.Join(entries, ",")
	}
	return fmt.Appendf(nil, `{"annotations":{},"labels":{},"spec":{"destinations":[%s],"destinationServiceAccounts":[%s],"sourceRepos":["*"],"syncWindows":[%s]}}`,
		list(`{"namespace":"%d","server":"*"}`), list(`{"server":"*","namespace":"%d"}`), list(`{"kind":"allow","schedule":"%d"}`))
}

// refused is the content of an Application that no API server takes: its destination is none.
func refused(version, size int) []byte {
	return fmt.Appendf(nil, `{"annotations":{},"labels":{},"spec":{"destination":"%d-%s","project":"open","source":{"path":"."}},"status":{}}`,
		version, strings.Repeat("a", size))
}

// ended is the content of a status in which another operation has ended with each version.
func ended(version int) []byte {
	return fmt.Appendf(nil, `{"annotations":{},"labels":{},"spec":{"destination":{},"project":"default","source":{"path":"."}},`+
		`"status":{"operationState":{"finishedAt":"%[2]s","message":"%[1]d","operation":{"sync":{"revision":"%[1]d"}},`+
		`"phase":"Succeeded","startedAt":"%[2]s"},"sync":{"status":"Synced"}}}`, version, clock(version))
}

// reconciled is the content of a status that says nothing but when it was.
func reconciled(version int) []byte {
	return fmt.Appendf(nil, `{"annotations":{},"labels":{},"spec":{"destination":{},"project":"default","source":{"path":"."}},`+
		`"status":{"reconciledAt":"%s","sync":{"status":"Synced"}}}`, clock(version))
}

// bombs are contents that are small once compressed and large once decoded.
func bombs() map[string][]byte {
	within := func(inner []byte) []byte {
		return slicesOf([]byte(`{"annotations":{},"labels":{},"spec":{"project":"default","x":`), inner, []byte(`},"status":{}}`))
	}
	most := stream.MaxDataBytes - 128
	list := func(one string) []byte {
		return within(slicesOf([]byte("["), bytes.Repeat([]byte(one+","), most/(len(one)+1)-1), []byte(one+"]")))
	}
	deep := most / 10
	return map[string][]byte{
		"objects":  list("{}"),
		"lists":    list("[]"),
		"numbers":  list("1e9"),
		"strings":  list(`""`),
		"nesting":  within(slicesOf(bytes.Repeat([]byte(`{"a":`), deep), []byte("1"), bytes.Repeat([]byte("}"), deep))),
		"nothing":  bytes.Repeat([]byte(" "), most),
		"escapes":  within(slicesOf([]byte(`"`), bytes.Repeat([]byte(`\u001b`), most/6), []byte(`"`))),
		"zeros":    make([]byte, most),
		"too long": make([]byte, stream.MaxDataBytes+1),
		// What is no UTF-8 has three bytes a byte once it is decoded, and a "<" six once it is encoded again.
		"no UTF-8":  within(slicesOf([]byte(`"`), bytes.Repeat([]byte{0xff}, most), []byte(`"`))),
		"markup":    within(slicesOf([]byte(`"`), bytes.Repeat([]byte("<"), most), []byte(`"`))),
		"terminals": within([]byte(`"\u001b[2K\rALL IS WELL\u001b]0;pwned\u0007"`)),
	}
}

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// apply asks for an object.
func apply(id string, c stream.Collection, name, uid string, data []byte) stream.Event {
	return stream.Event{
		ID: id, Key: stream.EntryKey{Collection: c, Name: name}, Verb: stream.Apply,
		Version: stream.Version{SourceUID: uid, Hash: stream.HashOf(data)}, Data: data, Revision: 1 << 40,
	}
}

// remove asks that an object is not there.
func remove(id string, c stream.Collection, name string) stream.Event {
	return stream.Event{ID: id, Key: stream.EntryKey{Collection: c, Name: name}, Verb: stream.Delete}
}
