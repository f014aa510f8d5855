package audit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/test/kit"
)

func newLog(t *testing.T, cfg audit.Config) (*audit.Log, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	cfg.Process, cfg.Metrics, cfg.Log = "principal-0", registry, zerolog.Nop()
	log, err := audit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return log, registry
}

// parse reads lines and fails at one that is no record.
func parse(t *testing.T, text string) []audit.Record {
	t.Helper()
	var out []audit.Record
	for line := range strings.Lines(text) {
		var r audit.Record
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&r); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

func numbers(records []audit.Record) []uint64 {
	out := make([]uint64, len(records))
	for i, r := range records {
		out[i] = r.Seq
	}
	return out
}

func TestRecordsAreNumbered(t *testing.T) {
	var out bytes.Buffer
	log, registry := newLog(t, audit.Config{Writer: &out})
	ctx, cancel := context.WithCancel(t.Context())
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	for range 3 {
		log.Write(ctx, audit.Record{Time: at, Call: log.Call(), Stage: audit.End, Verb: "get", Path: "/version", Status: 200})
	}
	cancel()
	if err := log.Run(ctx); err != nil {
		t.Fatal(err)
	}
	got := parse(t, out.String())
	if diff := cmp.Diff([]uint64{1, 2, 3}, numbers(got)); diff != "" {
		t.Errorf("numbers (-want +got)\n%s", diff)
	}
	first, _, _ := strings.Cut(out.String(), "\n")
	process, _, _ := strings.Cut(got[0].Process, "/")
	want := `{"time":"2026-11-21T11:00:00Z","process":"` + got[0].Process + `","seq":1,"call":1,"stage":"end","verb":"get","path":"/version",` +
		`"decision":"","decided_by":"","hub_decision":"","status":200,"request_bytes":0,"response_bytes":0,"duration_seconds":0}`
	if first != want || process != "principal-0" || got[0].Process != got[2].Process {
		t.Errorf("line\n%s\nwant\n%s", first, want)
	}
	expectWritten(t, registry, 3, 0)
}

func expectWritten(t *testing.T, registry *prometheus.Registry, written, dropped int) {
	t.Helper()
	want := "# HELP argomesh_audit_records_total Audit records, by what became of their line: written, or dropped since too many waited.\n" +
		"# TYPE argomesh_audit_records_total counter\n" +
		"argomesh_audit_records_total{result=\"dropped\"} " + itoa(dropped) + "\n" +
		"argomesh_audit_records_total{result=\"written\"} " + itoa(written) + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "argomesh_audit_records_total"); err != nil {
		t.Error(err)
	}
}

func itoa(n int) string { return strings.TrimSpace(string(must(json.Marshal(n)))) }

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// A second process has another name, so that its numbers are told from the first's.
func TestProcessesDiffer(t *testing.T) {
	name := func() string {
		var out bytes.Buffer
		log, _ := newLog(t, audit.Config{Writer: &out})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		log.Write(ctx, audit.Record{})
		if err := log.Run(ctx); err != nil {
			t.Fatal(err)
		}
		return parse(t, out.String())[0].Process
	}
	if a, b := name(), name(); a == b {
		t.Errorf("two processes are %q", a)
	}
}

// A writer that takes nothing holds up no call, and what is lost is seen.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe() // no one reads yet
		log, registry := newLog(t, audit.Config{Writer: out, Queue: 4})
		stop := kit.Background(t, log.Run)
		log.Write(t.Context(), audit.Record{}) // in the writer
		synctest.Wait()
		for range 6 { // four wait, two are lost
			log.Write(t.Context(), audit.Record{})
		}
		expectWritten(t, registry, 0, 2)
		var text bytes.Buffer
		read := make(chan error, 1)
		go func() { _, err := io.Copy(&text, in); read <- err }()
		synctest.Wait()
		log.Write(t.Context(), audit.Record{})
		stop()
		_ = out.Close()
		if err := <-read; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]uint64{1, 2, 3, 4, 5, 8}, numbers(parse(t, text.String()))); diff != "" {
			t.Errorf("numbers (-want +got): the gap must show\n%s", diff)
		}
		expectWritten(t, registry, 6, 2)
	})
}

// A stop does not wait for a writer that is stuck.
func TestStopWithStuckWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		log, _ := newLog(t, audit.Config{Writer: out, DrainTimeout: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		log.Write(ctx, audit.Record{})
		cancel()
		began := time.Now()
		if err := log.Run(ctx); err == nil || time.Since(began) != time.Second {
			t.Errorf("Run() = %v after %v", err, time.Since(began))
		}
		_ = in.Close()
	})
}

// full is a disk that is full for a while: it takes room bytes, and then no more.
type full struct {
	mu   sync.Mutex // guards what follows
	room int
	text bytes.Buffer
}

var errFull = errors.New("no space left on device")

func (f *full) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(p), f.room)
	f.room -= n
	f.text.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// What a full disk did not take is written once there is room, and a line that is
// there in half does not spoil the next one.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &full{room: 400} // the first record and a part of the second
		log, registry := newLog(t, audit.Config{Writer: disk})
		for range 3 {
			log.Write(t.Context(), audit.Record{Stage: audit.End})
		}
		stop := kit.Background(t, log.Run)
		time.Sleep(10 * time.Second) //nolint:forbidigo // the fake clock of synctest: it tries in vain
		disk.mu.Lock()
		disk.room = 1 << 20
		disk.mu.Unlock()
		time.Sleep(2 * time.Second) //nolint:forbidigo // as above
		stop()
		expectWritten(t, registry, 3, 0)
		var whole []uint64
		broken := 0
		lines := bufio.NewScanner(&disk.text)
		for lines.Scan() {
			var r audit.Record
			if json.Unmarshal(lines.Bytes(), &r) != nil {
				broken++
				continue
			}
			whole = append(whole, r.Seq)
		}
		if diff := cmp.Diff([]uint64{1, 2, 3}, whole); diff != "" || broken != 1 {
			t.Errorf("%d broken lines, records (-want +got)\n%s", broken, diff)
		}
	})
}

func TestFullDiskAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &full{}
		log, registry := newLog(t, audit.Config{Writer: disk})
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			log.Write(ctx, audit.Record{})
		}
		cancel()
		if err := log.Run(ctx); !errors.Is(err, errFull) {
			t.Errorf("Run() = %v", err)
		}
		expectWritten(t, registry, 0, 3)
	})
}

// What a caller chooses makes no line long, and none that is two.
func TestTextsAreCut(t *testing.T) {
	var out bytes.Buffer
	log, _ := newLog(t, audit.Config{Writer: &out})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	long := strings.Repeat("é\n\"", 100_000)
	log.Write(ctx, audit.Record{Name: long, UserAgent: "\xff\xfe", Path: "/" + long, AsUser: long})
	if err := log.Run(ctx); err != nil {
		t.Fatal(err)
	}
	got := parse(t, out.String())
	if len(got) != 1 || len(got[0].Name) > audit.MaxText+2 || len(out.String()) > 8<<10 || !strings.HasSuffix(got[0].Name, "…") {
		t.Errorf("%d records in %d bytes", len(got), out.Len())
	}
}

// A file that was renamed, removed or cut short is made again, or gone on with.
func TestFileFollowsItsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	f, err := audit.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	write := func(text string) {
		t.Helper()
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); string(got) != want || err != nil {
			t.Errorf("%s holds %q, %v, want %q", filepath.Base(path), got, err, want)
		}
	}
	write("1\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("2\n")
	expect(path+".1", "1\n")
	expect(path, "2\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write("3\n")
	expect(path, "3\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write("4\n")
	expect(path, "4\n")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("mode %v, %v: others may read it", info.Mode(), err)
	}
	if _, err := audit.OpenFile(filepath.Join(path, "no-folder")); err == nil {
		t.Error("a path that cannot be had was opened")
	}
}

// events is an exporter that keeps what it gets.
type events struct {
	sdklog.Exporter
	got []sdklog.Record
}

func (e *events) Export(_ context.Context, records []sdklog.Record) error {
	for _, r := range records {
		e.got = append(e.got, r.Clone())
	}
	return nil
}

func (*events) Shutdown(context.Context) error   { return nil }
func (*events) ForceFlush(context.Context) error { return nil }

func TestOpenTelemetry(t *testing.T) {
	exporter := &events{}
	provider := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(exporter)))
	log, _ := newLog(t, audit.Config{Provider: provider})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	log.Write(ctx, audit.Record{Time: at, Stage: audit.End, Verb: "get", Resource: "pods", Status: 200, Rule: "common-kinds", Decision: audit.Allow})
	if len(exporter.got) != 1 {
		t.Fatalf("%d records", len(exporter.got))
	}
	got := exporter.got[0]
	if got.TraceID() != span.TraceID() || got.EventName() != "io.argomesh.live_access.call" || !got.Timestamp().Equal(at) {
		t.Errorf("record of trace %s, event %q, at %v", got.TraceID(), got.EventName(), got.Timestamp())
	}
	found := map[string]string{}
	got.WalkAttributes(func(a attribute.KeyValue) bool {
		found[string(a.Key)] = a.Value.String()
		return true
	})
	for key, want := range map[string]string{
		"argomesh.audit.seq": "1", "k8s.verb": "get", "k8s.resource": "pods", "http.response.status_code": "200", "argomesh.audit.rule": "common-kinds",
	} {
		if found[key] != want {
			t.Errorf("%s = %q, want %q", key, found[key], want)
		}
	}
	if _, has := found["k8s.group"]; has {
		t.Error("a field without a value is an attribute")
	}
}

func TestNew(t *testing.T) {
	for name, cfg := range map[string]audit.Config{
		"no process": {Metrics: prometheus.NewRegistry()},
		"no metrics": {Process: "p"},
		"a negative": {Process: "p", Metrics: prometheus.NewRegistry(), Queue: -1},
	} {
		if _, err := audit.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
