package clusterinfo_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/heap"
)

var (
	plain = clusterinfo.Format{Plain: true}
	// noon is in no zone of this machine.
	noon = time.Date(2026, 11, 21, 14, 0, 0, 123456789, time.FixedZone("", 2*60*60))
)

func agent(t testing.TB, name string) identity.AgentName {
	t.Helper()
	n, err := identity.ParseAgentName(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestKey(t *testing.T) {
	for name, tt := range map[string]struct {
		format clusterinfo.Format
		want   string
	}{
		"as Argo CD does by default": {clusterinfo.Format{}, "cluster|info|https://p:9090/agents/a|1.8.3.gz"},
		"not compressed":             {clusterinfo.Format{Plain: true}, "cluster|info|https://p:9090/agents/a|1.8.3"},
		"another version":            {clusterinfo.Format{Version: "2"}, "cluster|info|https://p:9090/agents/a|2.gz"},
	} {
		if got := tt.format.Key("https://p:9090/agents/a"); got != tt.want {
			t.Errorf("%s: Key() = %s, want %s", name, got, tt.want)
		}
	}
}

func TestEncode(t *testing.T) {
	spoke := stream.SpokeInfo{Applications: 3, APIs: 90, Resources: 4000, CacheSynced: noon.Add(-time.Minute)}
	const rest = `"serverVersion":"v1.36.3","cacheInfo":{"resourcesCount":4000,"apisCount":90,"lastCacheSyncTime":"2026-11-21T11:59:00Z"},"applicationsCount":3}`
	for name, tt := range map[string]struct {
		session clusterinfo.Session
		want    string
	}{
		"connected": {
			clusterinfo.Session{Connected: true, Since: noon, Kubernetes: "v1.36.3", Spoke: spoke},
			`{"connectionState":{"status":"Successful","message":"agent edge-1 is connected since 2026-11-21T12:00:00Z","attemptedAt":"2026-11-21T12:00:00Z"},` + rest,
		},
		"deletions are held and objects are parked": {
			clusterinfo.Session{Connected: true, Since: noon, Held: 201, HeldReason: "TooMany", Parked: 3},
			`{"connectionState":{"status":"Successful","message":"agent edge-1 is connected since 2026-11-21T12:00:00Z; ` +
				`201 deletions held (TooMany): agentctl agent accept-deletions edge-1; 3 parked: agentctl agent get edge-1","attemptedAt":"2026-11-21T12:00:00Z"},"cacheInfo":{},"applicationsCount":0}`,
		},
		"a deletion is held while the agent is away": {
			clusterinfo.Session{Since: noon, Held: 1, HeldReason: "HistoryBroken"},
			`{"connectionState":{"status":"Failed","message":"agent edge-1 is not connected since 2026-11-21T12:00:00Z; ` +
				`1 deletion held (HistoryBroken): agentctl agent accept-deletions edge-1","attemptedAt":"2026-11-21T12:00:00Z"},"cacheInfo":{},"applicationsCount":0}`,
		},
		"what is known stays while the agent is away": {
			clusterinfo.Session{Since: noon, LastSeen: noon, Kubernetes: "v1.36.3+k3s1", Spoke: spoke},
			`{"connectionState":{"status":"Failed","message":"agent edge-1 is not connected since 2026-11-21T12:00:00Z","attemptedAt":"2026-11-21T12:00:00Z"},` + rest,
		},
		"since when is not known": {
			clusterinfo.Session{LastSeen: noon, Kubernetes: "v1.36.3-gke.100", Spoke: spoke},
			`{"connectionState":{"status":"Failed","message":"agent edge-1 is not connected, it was last seen at 2026-11-21T12:00:00Z","attemptedAt":"2026-11-21T12:00:00Z"},` + rest,
		},
		"never connected": {
			clusterinfo.Session{},
			`{"connectionState":{"status":"Failed","message":"agent edge-1 has never connected"},"cacheInfo":{},"applicationsCount":0}`,
		},
		"it is refused": {
			clusterinfo.Session{Refused: "refused since 2026-11-21T12:00:00Z: no Agent has its ID"},
			`{"connectionState":{"status":"Failed","message":"agent edge-1 has never connected; refused since 2026-11-21T12:00:00Z: no Agent has its ID"},"cacheInfo":{},"applicationsCount":0}`,
		},
		"another one of its name is refused while it is connected": {
			clusterinfo.Session{Connected: true, Since: noon, Refused: "refused: no Agent has its ID"},
			`{"connectionState":{"status":"Successful","message":"agent edge-1 is connected since 2026-11-21T12:00:00Z","attemptedAt":"2026-11-21T12:00:00Z"},"cacheInfo":{},"applicationsCount":0}`,
		},
		"it is suspended": {
			clusterinfo.Session{Since: noon, Suspended: true, Refused: "refused: spec.suspended is true"},
			`{"connectionState":{"status":"Failed","message":"agent edge-1 is not connected since 2026-11-21T12:00:00Z; suspended: agentctl agent resume edge-1","attemptedAt":"2026-11-21T12:00:00Z"},"cacheInfo":{},"applicationsCount":0}`,
		},
		"a version that is none, and times that cannot be said": {
			clusterinfo.Session{Connected: true, Kubernetes: "n/a", Since: time.Unix(1<<50, 0), Spoke: stream.SpokeInfo{CacheSynced: time.Unix(1<<60, 0)}},
			`{"connectionState":{"status":"Successful","message":"agent edge-1 is connected"},"serverVersion":"n/a","cacheInfo":{},"applicationsCount":0}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, string(plain.Encode(agent(t, "edge-1"), tt.session))); diff != "" {
				t.Errorf("Encode() (-want +got)\n%s", diff)
			}
			compressed := clusterinfo.Format{}.Encode(agent(t, "edge-1"), tt.session)
			if again := (clusterinfo.Format{}).Encode(agent(t, "edge-1"), tt.session); !bytes.Equal(compressed, again) {
				t.Error("equal sessions give different bytes")
			}
			r, err := gzip.NewReader(bytes.NewReader(compressed))
			if err != nil {
				t.Fatal(err)
			}
			var got any
			if err := json.NewDecoder(r).Decode(&got); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	want := stream.SpokeInfo{Applications: 3, APIs: 90, Resources: 1 << 40, CacheSynced: time.Unix(1_700_000_000, 0).UTC()}
	for name, format := range map[string]clusterinfo.Format{"compressed": {}, "plain": plain} {
		got, err := format.Decode(format.Encode(agent(t, "edge-1"), clusterinfo.Session{Spoke: want}))
		if err != nil || got != want {
			t.Errorf("%s: Decode() = %v, %v, want %v", name, got, err, want)
		}
	}
}

func TestDecodeBounds(t *testing.T) {
	pack := func(text string) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	good := pack(`{"applicationsCount":1}`)
	for name, tt := range map[string]struct {
		format clusterinfo.Format
		value  []byte
		ok     bool
	}{
		"nothing":                       {value: nil},
		"not compressed":                {value: []byte(`{}`)},
		"compressed, unexpectedly":      {format: plain, value: good},
		"cut off":                       {value: good[:len(good)-9]},
		"not an object":                 {value: pack(`[]`)},
		"unknown fields":                {value: pack(`{"applicationsCount":1,"new":{"a":[1]}}`), ok: true},
		"null":                          {value: pack(`null`), ok: true},
		"a negative count":              {value: pack(`{"applicationsCount":-1}`)},
		"a negative count of the cache": {value: pack(`{"cacheInfo":{"apisCount":-1}}`)},
		"an absurd count":               {value: pack(`{"cacheInfo":{"resourcesCount":9000000000000000000}}`)},
		"a number too long":             {value: pack(`{"applicationsCount":` + strings.Repeat("9", 100) + `}`)},
		"a time that is none":           {value: pack(`{"cacheInfo":{"lastCacheSyncTime":"yesterday"}}`)},
		"a time before 1970":            {value: pack(`{"cacheInfo":{"lastCacheSyncTime":"0001-01-01T00:00:00Z"}}`), ok: true},
		"the longest":                   {format: plain, value: pad(`{}`, clusterinfo.MaxBytes), ok: true},
		"one byte too long":             {format: plain, value: pad(`{}`, clusterinfo.MaxBytes+1)},
		"little that becomes a lot":     {value: pack(string(pad(`{}`, 9<<20)))},
		"as much as may come of it":     {value: pack(string(pad(`{}`, 8<<20))), ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.format.Decode(tt.value)
			if tt.ok != (err == nil) || err != nil && !errors.Is(err, clusterinfo.ErrInvalid) {
				t.Errorf("Decode() = %v, %v, want ok %v", got, err, tt.ok)
			}
			if !got.CacheSynced.IsZero() {
				t.Errorf("Decode() knows a time: %v", got.CacheSynced)
			}
		})
	}
}

// pad makes text n bytes long with white space.
func pad(text string, n int) []byte {
	return append([]byte(text), bytes.Repeat([]byte(" "), n-len(text))...)
}

// Whatever an entry holds, what becomes of it can be sent: a principal closes the
// connection on a message that breaks the protocol.
func FuzzDecode(f *testing.F) {
	name := agent(f, "edge-1")
	f.Add(clusterinfo.Format{}.Encode(name, clusterinfo.Session{Connected: true, Since: noon}), false)
	f.Add(plain.Encode(name, clusterinfo.Session{Spoke: stream.SpokeInfo{Applications: 1, CacheSynced: noon}}), true)
	f.Add([]byte(`{"cacheInfo":{"lastCacheSyncTime":"9999-12-31T23:59:59-23:59"}}`), true)
	f.Fuzz(func(t *testing.T, value []byte, isPlain bool) {
		format := clusterinfo.Format{Plain: isPlain}
		var info stream.SpokeInfo
		var err error
		if took := heap.Of(func() { info, err = format.Decode(value) }); took > mostHeap {
			t.Fatalf("%d bytes of heap for %d", took, len(value))
		}
		if err != nil {
			if info != (stream.SpokeInfo{}) || !errors.Is(err, clusterinfo.ErrInvalid) {
				t.Fatalf("Decode() = %v, %v", info, err)
			}
			return
		}
		sent, err := stream.ParseFrame(stream.FrameOf(info))
		if err != nil {
			t.Fatalf("%v cannot be sent: %v", info, err)
		}
		if got, ok := sent.(stream.SpokeInfo); !ok || !got.CacheSynced.Equal(info.CacheSynced) {
			t.Fatalf("%v arrives as %v", info, sent)
		}
		again, err := format.Decode(format.Encode(name, clusterinfo.Session{Spoke: info}))
		if err != nil || again != info {
			t.Fatalf("Decode(Encode(%v)) = %v, %v", info, again, err)
		}
	})
}
