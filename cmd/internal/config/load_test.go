package config_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/process"
	"github.com/argomesh/argomesh/test/golden"
)

// settings has one field of every form a binary may use.
type settings struct {
	Log    config.Log `koanf:"log"`
	Stream stream     `koanf:"stream"`
	Access []rule     `koanf:"access" help:"what the hub may do here"`
}

type stream struct {
	Listen       string            `koanf:"listen" help:"address agents connect to"`
	DrainTimeout time.Duration     `koanf:"drain_timeout" help:"how long open streams may finish"`
	Window       uint16            `koanf:"window" help:"entries sent before one must be acknowledged"`
	Offset       int               `koanf:"offset"`
	Ratio        float64           `koanf:"ratio"`
	Compress     bool              `koanf:"compress" help:"compress frames"`
	ID           spiffeid.ID       `koanf:"id" help:"SPIFFE ID of the principal"`
	Peers        []spiffeid.ID     `koanf:"peers" help:"SPIFFE IDs of trusted proxies"`
	Prefixes     []netip.Prefix    `koanf:"prefixes"`
	Retry        *bool             `koanf:"retry" help:"dial again; without a value the mode decides"`
	Methods      []string          `koanf:"methods" help:"accepted authentication methods"`
	Labels       map[string]string `koanf:"labels" help:"labels of the cluster Secret"`
	Socket       string            `koanf:"socket" env:"SPIFFE_ENDPOINT_SOCKET" help:"address of the Workload API"`
}

type rule struct {
	Kind  string   `koanf:"kind"`
	Verbs []string `koanf:"verbs"`
}

// Validate reports two problems for one field, to see that both arrive.
func (s *stream) Validate() error {
	var problems []error
	if s.Listen == "nowhere" {
		problems = append(problems, config.Invalid("listen", "%q is nowhere", s.Listen))
	}
	if s.Window == 0 {
		problems = append(problems, config.Invalid("window", "0 sends nothing: use 1 or more"))
	}
	return errors.Join(problems...)
}

func defaults() settings {
	return settings{
		Log: config.DefaultLog(),
		Stream: stream{
			Listen: ":8443", DrainTimeout: 10 * time.Second, Window: 64, Compress: true,
			Methods: []string{"spiffe-x509", "header", "other"}, Labels: map[string]string{"env": "test"},
		},
	}
}

// load loads with a file of that text ("" for none), an environment and flags.
func load(t testing.TB, yaml string, environ []string, args ...string) (settings, error) {
	t.Helper()
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "principal.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config", path}, args...)
	}
	got, err := config.Load(config.Program{
		Name: "principal", Summary: "principal is the hub side of Argomesh.", Version: "v1.2.3",
		Environ: func() []string { return environ },
	}, args, defaults())
	if yaml != "" && err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), args[1], "principal.yaml"))
	}
	return got, err
}

func TestLoadLayers(t *testing.T) {
	id := spiffeid.RequireFromString("spiffe://hub.example/principal")
	for name, c := range map[string]struct {
		yaml    string
		environ []string
		args    []string
		want    func(*settings)
	}{
		"nothing set gives the defaults": {want: func(*settings) {}},
		"the file overrides the defaults": {
			yaml: "stream:\n  listen: 127.0.0.1:1\n  drain_timeout: 1m30s\n  window: 7\n  compress: false\n  id: spiffe://hub.example/principal\nlog:\n  level: debug\n",
			want: func(s *settings) {
				s.Stream.Listen, s.Stream.DrainTimeout, s.Stream.Window, s.Stream.Compress = "127.0.0.1:1", 90*time.Second, 7, false
				s.Stream.ID = id
				s.Log.Level = config.Level(zerolog.DebugLevel)
			},
		},
		"the environment overrides the file": {
			yaml: "stream: {listen: a, window: 7}",
			environ: []string{
				"PRINCIPAL__STREAM__LISTEN=b", "PRINCIPAL__STREAM__COMPRESS=false", "PRINCIPAL__STREAM__RATIO=0.5",
				"PRINCIPAL_PORT_8443_TCP=tcp://10.0.0.1:8443", "AGENT__STREAM__LISTEN=c",
			},
			want: func(s *settings) {
				s.Stream.Listen, s.Stream.Window, s.Stream.Compress, s.Stream.Ratio = "b", 7, false, 0.5
			},
		},
		"flags override the environment": {
			environ: []string{"PRINCIPAL__STREAM__LISTEN=b", "PRINCIPAL__STREAM__WINDOW=8"},
			args:    []string{"--stream.listen=c", "--stream.compress=false", "--stream.offset", "-3"},
			want: func(s *settings) {
				s.Stream.Listen, s.Stream.Window, s.Stream.Compress, s.Stream.Offset = "c", 8, false, -3
			},
		},
		"a switch needs no value": {
			yaml: "stream: {compress: false}",
			args: []string{"--stream.compress"},
			want: func(*settings) {},
		},
		"a setting that nobody gives is told from one that is false": {
			yaml: "stream: {retry: false}",
			want: func(s *settings) { s.Stream.Retry = new(bool) },
		},
		"and needs no value as a flag": {
			yaml: "stream: {retry: false}",
			args: []string{"--stream.retry"},
			want: func(s *settings) { yes := true; s.Stream.Retry = &yes },
		},
		"lists and maps replace what was there": {
			yaml: "stream:\n  methods: [header]\n  labels: {a.b/c: d}\n",
			want: func(s *settings) {
				s.Stream.Methods, s.Stream.Labels = []string{"header"}, map[string]string{"a.b/c": "d"}
			},
		},
		"lists and maps in one line": {
			yaml: "stream:\n  methods: [header]\n  labels: {a: b, c: d}\n",
			environ: []string{
				"PRINCIPAL__STREAM__METHODS= spiffe-jwt , header", "PRINCIPAL__STREAM__PREFIXES=10.0.0.0/8,::1/128",
			},
			args: []string{
				"--stream.labels=x=y=z", "--stream.labels", "v=w",
				"--stream.peers=spiffe://hub.example/principal", "--stream.peers=spiffe://hub.example/b",
			},
			want: func(s *settings) {
				s.Stream.Methods = []string{"spiffe-jwt", "header"}
				s.Stream.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
				s.Stream.Labels = map[string]string{"x": "y=z", "v": "w"}
				s.Stream.Peers = []spiffeid.ID{id, spiffeid.RequireFromString("spiffe://hub.example/b")}
			},
		},
		"an empty list is a list": {
			environ: []string{"PRINCIPAL__STREAM__METHODS="},
			want:    func(s *settings) { s.Stream.Methods = []string{} },
		},
		"lists of mappings, anchors and merge keys": {
			yaml: "access:\n- &pods {kind: pods, verbs: [get]}\n- <<: *pods\n  verbs: [list, watch]\nstream: {methods: [a]}\n",
			want: func(s *settings) {
				s.Access = []rule{{"pods", []string{"get"}}, {"pods", []string{"list", "watch"}}}
				s.Stream.Methods = []string{"a"}
			},
		},
		"an empty section and a null set nothing": {
			yaml: "log:\nstream:\n  listen:\n",
			want: func(*settings) {},
		},
		"an agreed variable counts less than the file": {
			yaml:    "stream: {socket: unix:///file}",
			environ: []string{"SPIFFE_ENDPOINT_SOCKET=unix:///agreed"},
			want:    func(s *settings) { s.Stream.Socket = "unix:///file" },
		},
		"an agreed variable counts more than the default": {
			environ: []string{"SPIFFE_ENDPOINT_SOCKET=unix:///agreed"},
			want:    func(s *settings) { s.Stream.Socket = "unix:///agreed" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := defaults()
			c.want(&want)
			got, err := load(t, c.yaml, c.environ, c.args...)
			if err != nil {
				t.Fatalf("Load() error: %v", err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(spiffeid.ID{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("Load() (-want +got)\n%s", diff)
			}
		})
	}
}

func TestLoadDoesNotChangeTheDefaults(t *testing.T) {
	shared := defaults()
	_, err := config.Load(config.Program{Name: "principal", Environ: func() []string { return nil }},
		[]string{"--stream.methods=x", "--stream.labels=y=z"}, shared)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults().Stream.Labels, shared.Stream.Labels); diff != "" {
		t.Errorf("labels of the defaults (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(defaults().Stream.Methods, shared.Stream.Methods); diff != "" {
		t.Errorf("methods of the defaults (-want +got)\n%s", diff)
	}
}

func TestLoadFileFromEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "principal.yaml")
	if err := os.WriteFile(path, []byte("stream: {listen: from-file}"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := load(t, "", []string{"PRINCIPAL__CONFIG=" + path})
	if err != nil || got.Stream.Listen != "from-file" {
		t.Errorf("Load() = %q, %v, want from-file", got.Stream.Listen, err)
	}
}

func TestLoadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		yaml    string
		environ []string
		args    []string
		want    []string // lines
	}{
		"unknown key in the file": {
			yaml: "log:\n  level: info\nstream:\n  lisen: x\n",
			want: []string{"stream.lisen: unknown key, did you mean stream.listen? (principal.yaml, line 4)"},
		},
		"unknown section in the file": {
			yaml: "steam: {listen: x}",
			want: []string{"steam: unknown key, did you mean stream? (principal.yaml, line 1)"},
		},
		"unknown key like no other": {
			yaml: "replication: 3",
			want: []string{"replication: unknown key, --help lists all (principal.yaml, line 1)"},
		},
		"flat key in the file": {
			yaml: "stream.listen: x",
			want: []string{"stream.listen: unknown key: nest it, one level for each part between dots (principal.yaml, line 1)"},
		},
		"unknown key inside a list": {
			yaml: "access:\n- kind: pods\n- kinds: pods\n",
			want: []string{"access[1]: has invalid keys: kinds (principal.yaml, line 1)"},
		},
		"unknown key in the environment": {
			environ: []string{"PRINCIPAL__STREAM__LISEN=x"},
			want:    []string{"environment variable PRINCIPAL__STREAM__LISEN: sets no known key, did you mean PRINCIPAL__STREAM__LISTEN?"},
		},
		"a nested setting in the environment": {
			environ: []string{"PRINCIPAL__ACCESS=pods"},
			want:    []string{"access: cannot be given in one line: set it in the file named by --config (environment variable PRINCIPAL__ACCESS)"},
		},
		"unknown flag": {
			args: []string{"--stream.lisen=x"},
			want: []string{"unknown flag --stream.lisen, did you mean --stream.listen?"},
		},
		"argument that is no flag": {
			args: []string{"serve"},
			want: []string{`unexpected argument "serve": settings are given as --key=value, --help lists all`},
		},
		"flag without its value": {
			args: []string{"--stream.listen"},
			want: []string{"flag needs an argument: --stream.listen: --help lists all flags"},
		},
		"every problem at once, each with its source": {
			yaml:    "stream: {window: 70000, compress: 1, retry: 1, drain_timeout: 10}\nlog: loud\n",
			environ: []string{"PRINCIPAL__STREAM__RATIO=half", "PRINCIPAL__LOG__LEVEL=loud", "PRINCIPAL__STREAM__PEERS=spiffe://a/b,none"},
			args:    []string{"--stream.offset=", "--stream.labels=x"},
			want: []string{
				"log: holds further keys, it is not a value itself (principal.yaml, line 2)",
				`log.level: "loud" is not a level: use trace, debug, info, warn or error (environment variable PRINCIPAL__LOG__LEVEL)`,
				"stream.drain_timeout: 10 has no unit: write a duration such as 10s or 1m30s (principal.yaml, line 1)",
				"stream.window: 70000 is not an integer from 0 to 65535 (principal.yaml, line 1)",
				"stream.offset: is set to nothing: give a value, or do not set it (flag --stream.offset)",
				`stream.ratio: "half" is not a number (environment variable PRINCIPAL__STREAM__RATIO)`,
				"stream.compress: 1 is neither true nor false (principal.yaml, line 1)",
				`stream.peers[1]: "none" is not valid: scheme is missing or invalid (environment variable PRINCIPAL__STREAM__PEERS)`,
				"stream.retry: 1 is neither true nor false (principal.yaml, line 1)",
				`stream.labels: "x" is not a key=value pair (flag --stream.labels)`,
			},
		},
		"bad duration": {
			environ: []string{"PRINCIPAL__STREAM__DRAIN_TIMEOUT=soon"},
			want:    []string{`stream.drain_timeout: "soon" is not a duration such as 10s or 1m30s (environment variable PRINCIPAL__STREAM__DRAIN_TIMEOUT)`},
		},
		"bad SPIFFE ID": {
			args: []string{"--stream.id=http://x"},
			want: []string{`stream.id: "http://x" is not valid: scheme is missing or invalid (flag --stream.id)`},
		},
		"number where text belongs": {
			yaml: "stream: {listen: 8443}",
			want: []string{"stream.listen: 8443 is not text: put it in quotes (principal.yaml, line 1)"},
		},
		"list where text belongs": {
			yaml: "stream: {listen: [a, b]}",
			want: []string{"stream.listen: [a b] is not text (principal.yaml, line 1)"},
		},
		"half an integer": {
			yaml: "stream: {offset: 1.5}",
			want: []string{"stream.offset: 1.5 is not an integer (principal.yaml, line 1)"},
		},
		"validation names full keys": {
			yaml: "stream: {listen: nowhere, window: 0}\nlog: {format: xml}\n",
			want: []string{
				`log.format: "xml" is not a format: use json or console`,
				`stream.listen: "nowhere" is nowhere`,
				"stream.window: 0 sends nothing: use 1 or more",
			},
		},
		"no file": {
			args: []string{"--config=/does/not/exist.yaml"},
			want: []string{"config: read /does/not/exist.yaml: no such file or directory: name a readable YAML file (flag --config)"},
		},
		"a folder": {
			environ: []string{"PRINCIPAL__CONFIG=/"},
			want:    []string{"config: read /: is a directory: name a readable YAML file (environment variable PRINCIPAL__CONFIG)"},
		},
		"broken YAML": {
			yaml: "stream: [",
			want: []string{"config: principal.yaml is not YAML we can read: line 1: did not find expected node content"},
		},
		"no mapping": {
			yaml: "- a",
			want: []string{"config: principal.yaml is not YAML we can read: unmarshal errors: line 1: cannot unmarshal !!seq into map[string]interface {}"},
		},
		"two documents": {
			yaml: "stream: {}\n---\nstream: {}\n",
			want: []string{"config: principal.yaml holds more than one YAML document: keep one"},
		},
		"key given twice": {
			yaml: "log: {}\nlog: {}\n",
			want: []string{`config: principal.yaml is not YAML we can read: unmarshal errors: line 2: mapping key "log" already defined at line 1`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := load(t, c.yaml, c.environ, c.args...)
			if err == nil {
				t.Fatalf("Load() = %+v, want an error", got)
			}
			if diff := cmp.Diff(c.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("Load() error (-want +got)\n%s", diff)
			}
		})
	}
}

func TestHelpGolden(t *testing.T) {
	for _, arg := range []string{"--help", "-h"} {
		// A broken environment must not keep the manual from its reader.
		_, err := load(t, "", []string{"PRINCIPAL__NONSENSE=1"}, arg)
		var answer *process.Answer
		if !errors.As(err, &answer) {
			t.Fatalf("Load(%s) error = %v, want an Answer", arg, err)
		}
		golden.Compare(t, "testdata/help.txt", answer.Text)
	}
	_, err := load(t, "", nil, "--version")
	var answer *process.Answer
	if !errors.As(err, &answer) || answer.Text != "principal v1.2.3\n" {
		t.Errorf("Load(--version) error = %v, want the version", err)
	}
}

func TestLoadRefusesWrongStructs(t *testing.T) {
	type untagged struct{ Listen string }
	type dotted struct {
		Listen string `koanf:"a.b"`
	}
	type twice struct {
		A string `koanf:"a"`
		B string `koanf:"a"`
	}
	type taken struct {
		Help string `koanf:"help"`
	}
	program := config.Program{Name: "x", Environ: func() []string { return nil }}
	for name, try := range map[string]func() error{
		"no tag":       func() error { _, err := config.Load(program, nil, untagged{}); return err },
		"dotted tag":   func() error { _, err := config.Load(program, nil, dotted{}); return err },
		"key twice":    func() error { _, err := config.Load(program, nil, twice{}); return err },
		"reserved key": func() error { _, err := config.Load(program, nil, taken{}); return err },
		"no struct":    func() error { _, err := config.Load(program, nil, 3); return err },
	} {
		if err := try(); err == nil {
			t.Errorf("Load() of a struct with %s succeeded", name)
		}
	}
}

func TestBlocks(t *testing.T) {
	type all struct {
		Log        config.Log        `koanf:"log"`
		Admin      config.Admin      `koanf:"admin"`
		Tracing    config.Tracing    `koanf:"tracing"`
		Kubernetes config.Kubernetes `koanf:"kubernetes"`
		Identity   config.Identity   `koanf:"identity"`
	}
	start := all{config.DefaultLog(), config.DefaultAdmin(), config.DefaultTracing(), config.DefaultKubernetes(), config.Identity{}}
	check := func(args ...string) []string {
		_, err := config.Load(config.Program{
			Name:    "agent",
			Environ: func() []string { return []string{"SPIFFE_ENDPOINT_SOCKET=unix:///run/spire/agent/api.sock"} },
		}, args, start)
		if err == nil {
			return nil
		}
		return strings.Split(err.Error(), "\n")
	}
	if problems := check(); problems != nil {
		t.Errorf("the defaults are refused: %q", problems)
	}
	if problems := check("--tracing.otlp_endpoint=[::1]:4317", "--admin.listen=unix:///run/x.sock", "--kubernetes.qps=-1", "--kubernetes.burst=0",
		"--identity.spiffe_id=spiffe://td/x", "--identity.hint=y", "--identity.socket=tcp://127.0.0.1:1"); problems != nil {
		t.Errorf("good settings are refused: %q", problems)
	}
	want := []string{
		`admin.listen: "8080" is not an address: use host:port, such as 127.0.0.1:8080, or unix:///path`,
		`tracing.otlp_endpoint: "http://collector:4317" is not host:port: use the collector's gRPC address, such as localhost:4317`,
		`tracing.sample_ratio: NaN is out of range: use 0 to 1`,
		`kubernetes.qps: 0 allows no request: use a positive number, or -1 for no limit`,
		`kubernetes.context: "hub" needs a kubeconfig to be looked up in: set kubernetes.kubeconfig too`,
		`identity.socket: "/run/api.sock" is not the address of a Workload API: use unix:///path or tcp://ip:port`,
	}
	got := check("--admin.listen=8080", "--tracing.otlp_endpoint=http://collector:4317", "--tracing.sample_ratio=NaN",
		"--kubernetes.qps=0", "--kubernetes.context=hub", "--identity.socket=/run/api.sock")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load() error (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"kubernetes.burst: 0 allows no request: use 1 or more"}, check("--kubernetes.burst=0")); diff != "" {
		t.Errorf("Load() error (-want +got)\n%s", diff)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("stream: {listen: a, methods: [b, c], labels: {d: e}, drain_timeout: 3s}\naccess: [{kind: pods, verbs: [get]}]\n", "PRINCIPAL__STREAM__WINDOW", "3")
	f.Add("a: &a {b: 1}\nlog: *a\nstream: {<<: *a, id: spiffe://x/y}\n", "PRINCIPAL__STREAM__PEERS", "spiffe://a/b, spiffe://c/d")
	f.Add("stream: {ratio: .inf, window: 0x10, offset: -1e3, compress: yes}\n? [a]\n: b\n", "PRINCIPAL__LOG__LEVEL", "warn")
	f.Add("\"\\n\": 1\n", "PRINCIPAL__\n", "\x00")
	f.Add("log: {level: 2026-11-21}\nstream: {labels: {1: 2}}\n", "SPIFFE_ENDPOINT_SOCKET", "unix:///x")
	f.Fuzz(func(t *testing.T, yaml, name, value string) {
		environ := []string{name + "=" + value, "PRINCIPAL__STREAM__OFFSET=5"}
		first, err := load(t, yaml, environ, "--stream.listen=last")
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.Contains(line, ": ") {
					t.Errorf("Load() error has a line without a key: %q", line)
				}
			}
			return
		}
		if first.Stream.Listen != "last" {
			t.Errorf("a flag was overridden by %q", first.Stream.Listen)
		}
		again, err := load(t, yaml, environ, "--stream.listen=last")
		if err != nil || fmt.Sprint(first) != fmt.Sprint(again) {
			t.Errorf("the same settings loaded differently: %v, then %v, %v", first, again, err)
		}
	})
}
