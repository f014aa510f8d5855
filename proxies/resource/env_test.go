package resource_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/proxies/resource/replies"
	"github.com/argomesh/argomesh/proxies/resource/spoke"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// everything is a configuration that lets everything through.
func everything() access.Config {
	return access.Config{
		Enabled: true, Writes: true, Secrets: v1alpha1.SecretsOn, Tokens: true, Proxy: true, Exec: true, EphemeralContainers: true, Nodes: true,
		Rules: []access.Rule{{Name: "everything", Groups: []string{"*"}, Resources: []string{"*"}}},
	}
}

func policy(t *testing.T, side access.Side, config access.Config) *access.Policy {
	t.Helper()
	p, err := access.New(side, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func agent(t *testing.T, name string) identity.AgentName {
	t.Helper()
	n, err := identity.ParseAgentName(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// proxyEnv is a hub with agent edge-1, whose spoke's API server is a handler of the test.
type proxyEnv struct {
	t     *testing.T
	api   *httptest.Server
	hub   *resource.Hub
	spoke *spoke.Spoke
	// address is a unix socket, as Envoy would dial it.
	address string
	metrics *prometheus.Registry
	stopHub func() // and what writes the records
	records *records

	mu    sync.Mutex // guards what follows
	away  bool
	conns []*tunnelConn // the hub's ends of the tunnel's connections
	ends  []net.Conn    // the spoke's ends
	seen  []*http.Request
}

// settings change a proxyEnv before it starts.
type settings struct {
	hubAccess, spokeAccess *access.Config
	hub                    func(*resource.HubConfig)
	spoke                  func(*spoke.Config)
	store                  replies.LastReplyStore
}

const tokenKind = "eyJhbGciOiJFUzI1NiJ9"

// token is a token of an agent, as the fake verifier takes it.
func token(name string) string {
	payload := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"sub":"agent:%s","jti":"id-of-%s"}`, name, name))
	return tokenKind + "." + payload + "." + name
}

// unknownToken is one of which no one knows yet whether it is good.
const unknownToken = "unknown"

type verifier struct{}

func (verifier) Verify(token string) (identity.AgentName, error) {
	parts := strings.Split(token, ".")
	if token == unknownToken {
		return identity.AgentName{}, errors.New("the keys are not read yet")
	}
	if len(parts) != 3 || parts[0] != tokenKind {
		return identity.AgentName{}, fmt.Errorf("not a token: %w", identity.ErrUnauthenticated)
	}
	return identity.ParseAgentName(parts[2])
}

// Bound implements resource.Verifier: every token is.
func (verifier) Bound(string, resource.Target) bool { return true }

// Revoked implements resource.Verifier: no token is.
func (verifier) Revoked(string) bool { return false }

// Changed implements resource.Verifier: it never does.
func (verifier) Changed() <-chan struct{} { return nil }

type registry map[string]resource.Target

func (r registry) Target(name identity.AgentName) (resource.Target, error) {
	target, found := r[name.String()]
	if !found {
		return resource.Target{}, fmt.Errorf("not registered: %w", identity.ErrDenied)
	}
	return target, nil
}

// Changed implements resource.Registry: it never does.
func (registry) Changed() <-chan struct{} { return nil }

// records is what the audit wrote.
type records struct {
	mu    sync.Mutex // guards text and grown
	text  bytes.Buffer
	grown chan struct{}
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.grown != nil {
		close(r.grown)
		r.grown = nil
	}
	return r.text.Write(p)
}

// wait returns the records once there are n of a stage.
func (r *records) wait(t *testing.T, stage audit.Stage, n int) []audit.Record {
	t.Helper()
	for {
		r.mu.Lock()
		if r.grown == nil {
			r.grown = make(chan struct{})
		}
		grown := r.grown
		var all []audit.Record
		for line := range strings.Lines(r.text.String()) {
			var record audit.Record
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if record.Stage == stage {
				all = append(all, record)
			}
		}
		r.mu.Unlock()
		if len(all) >= n {
			return all
		}
		select {
		case <-grown:
		case <-time.After(10 * time.Second):
			t.Fatalf("%d records of stage %s after 10s, want %d", len(all), stage, n)
		}
	}
}

// start makes a proxyEnv whose API server is api.
func start(t *testing.T, api http.HandlerFunc, with settings) *proxyEnv {
	t.Helper()
	w := &proxyEnv{t: t, metrics: prometheus.NewRegistry(), records: &records{}}
	w.api = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen = append(w.seen, r)
		w.mu.Unlock()
		api(rw, r)
	}))
	w.api.Config.ErrorLog = nil
	w.api.Start()
	hubAccess, spokeAccess := everything(), everything()
	if with.hubAccess != nil {
		hubAccess = *with.hubAccess
	}
	if with.spokeAccess != nil {
		spokeAccess = *with.spokeAccess
	}
	spokeConfig := spoke.Config{
		REST:   &rest.Config{Host: w.api.URL, BearerToken: "of-the-agent"},
		Policy: policy(t, access.Spoke, spokeAccess), Tracer: noop.NewTracerProvider().Tracer(""),
		CallsPerSecond: 1_000_000, // fuzz tests and those of connections make as many as they can
		Metrics:        prometheus.NewRegistry(), Log: zerolog.Nop(),
	}
	if with.spoke != nil {
		with.spoke(&spokeConfig)
	}
	var err error
	if w.spoke, err = spoke.New(spokeConfig); err != nil {
		t.Fatal(err)
	}
	log, err := audit.New(audit.Config{Process: "test", Writer: w.records, Metrics: w.metrics, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	replies, err := replies.New(replies.Config{Store: with.store, Metrics: w.metrics, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	hubConfig := resource.HubConfig{
		Dial: w.dial, Tokens: verifier{}, Audit: log, Replies: replies, Tracer: noop.NewTracerProvider().Tracer(""),
		Agents: registry{
			"edge-1": {UID: "uid-1", Policy: policy(t, access.Hub, hubAccess)},
			"edge-2": {UID: "uid-2", Policy: policy(t, access.Hub, hubAccess)},
		},
		Metrics: w.metrics, Log: zerolog.Nop(), DrainTimeout: 50 * time.Millisecond,
	}
	if with.hub != nil {
		with.hub(&hubConfig)
	}
	if w.hub, err = resource.NewHub(hubConfig); err != nil {
		t.Fatal(err)
	}
	w.run(log)
	return w
}

// run runs hub and audit until the test ends.
func (w *proxyEnv) run(log *audit.Log) {
	w.t.Helper()
	w.address = filepath.Join(w.t.TempDir(), "hub.sock")
	listener, err := net.Listen("unix", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		w.cut()
		w.api.CloseClientConnections()
		w.api.Close()
	})
	stopLog := kit.Background(w.t, log.Run)
	stopHub := kit.Background(w.t, func(ctx context.Context) error { return w.hub.Run(ctx, listener) })
	w.stopHub = func() {
		stopHub()
		stopLog()
	}
}

// dial is the tunnel: a connection to the spoke of edge-1.
func (w *proxyEnv) dial(_ context.Context, to identity.AgentName) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away || to.String() != "edge-1" {
		return nil, fmt.Errorf("dial %s: %w", to, stream.ErrNotConnected)
	}
	end, there := pair(w.t)
	here := &tunnelConn{UnixConn: end.(*net.UnixConn)}
	w.conns, w.ends = append(w.conns, here), append(w.ends, there)
	go func() {
		// As a tunnel does: an error at that end is one at this end.
		if err := w.spoke.Serve(context.Background(), there); err != nil {
			here.lose()
		}
		_ = there.Close()
	}()
	return here, nil
}

// tunnelConn is a connection of the tunnel: when it is lost, reads and writes fail
// instead of coming to an end.
type tunnelConn struct {
	*net.UnixConn
	lost atomic.Bool
}

var errLost = errors.New("the agent was lost")

func (c *tunnelConn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	if c.lost.Load() {
		return 0, errLost
	}
	return n, err
}

func (c *tunnelConn) lose() {
	c.lost.Store(true)
	_ = c.Close()
}

// pair returns the two ends of a connection that can be half closed.
func pair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "pair.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if here, err = net.Dial("unix", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return here, there
}

// setAway says whether the agent can be reached.
func (w *proxyEnv) setAway(away bool) {
	w.mu.Lock()
	w.away = away
	w.mu.Unlock()
	if away {
		w.cut()
	}
}

// cut loses all connections to the agent, in the middle of whatever they carry.
func (w *proxyEnv) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.lose()
	}
	for _, c := range w.ends {
		_ = c.Close()
	}
	w.conns, w.ends = nil, nil
}

// calls returns what the API server was asked.
func (w *proxyEnv) calls() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*http.Request(nil), w.seen...)
}

// connect opens a connection to the hub.
func (w *proxyEnv) connect() net.Conn {
	w.t.Helper()
	conn, err := net.Dial("unix", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answer is one answer of the hub.
type answer struct {
	Code            int
	Header, Trailer http.Header
	Body            io.Reader
}

// send writes a message as it is and reads the answer. Lines of text end with \n.
func (w *proxyEnv) send(text string) (answer, net.Conn, *bufio.Reader) {
	w.t.Helper()
	conn := w.connect()
	if _, err := io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		w.t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	return answer{Code: res.StatusCode, Header: res.Header, Body: res.Body}, conn, reader
}

// client calls the hub over its socket.
func (w *proxyEnv) client() *http.Client {
	transport := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", w.address)
	}}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request makes a call to edge-1 with its token.
func (w *proxyEnv) request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://hub/agents/edge-1"+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token("edge-1"))
	return r
}

// do calls and reads the whole answer.
func (w *proxyEnv) do(r *http.Request) (answer, string) {
	w.t.Helper()
	res, err := w.client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{Code: res.StatusCode, Header: res.Header, Trailer: res.Trailer}, string(body)
}

// get reads path at edge-1.
func (w *proxyEnv) get(path string) (answer, string) {
	w.t.Helper()
	return w.do(w.request(w.t.Context(), http.MethodGet, path, nil))
}

// status reads an answer as a Status.
func status(t *testing.T, body string) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Kind != "Status" || s.APIVersion != "v1" || s.Status != metav1.StatusFailure {
		t.Fatalf("%q is no Status of a failure: %v", body, err)
	}
	return s
}

// sentence returns what a refused caller is told: the message of a Status, or a line of
// plain text where the call is for no object.
func sentence(t *testing.T, res answer, body string) string {
	t.Helper()
	if res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		s := status(t, body)
		if int(s.Code) != res.Code {
			t.Errorf("the Status of an answer %d has code %d", res.Code, s.Code)
		}
		return s.Message
	}
	line, found := strings.CutSuffix(body, "\n")
	if !found || line == "" || strings.Contains(line, "\n") {
		t.Errorf("%q is no line", body)
	}
	return line
}
