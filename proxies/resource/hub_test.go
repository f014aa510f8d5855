package resource_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/audit"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/proxies/resource/spoke"
)

func TestAnswersPassAsTheyAre(t *testing.T) {
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Trailer", "X-End")
		w.Header().Add("Warning", `299 - "old"`)
		w.Header().Add("Warning", `299 - "older"`)
		w.Header().Set("Audit-Id", "a")
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
		w.Header().Set("X-End", "reached")
	}, settings{})
	r := w.request(t.Context(), http.MethodPut, "/api/v1/namespaces/web/configmaps/a%3Ab?fieldManager=x&dryRun=All", strings.NewReader("content"))
	r.Header.Set("X-Forwarded-For", "203.0.113.9, 10.1.2.3")
	r.Header.Set("User-Agent", "kubectl/v1.36.3")
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	res, body := w.do(r)
	const want = "PUT /api/v1/namespaces/web/configmaps/a%3Ab?fieldManager=x&dryRun=All content"
	if res.Code != http.StatusConflict || body != want {
		t.Errorf("answer %d %q, want 409 %q", res.Code, body, want)
	}
	if diff := cmp.Diff([]string{`299 - "old"`, `299 - "older"`}, res.Header["Warning"]); diff != "" || res.Header.Get("Audit-Id") != "a" {
		t.Errorf("header = %v", res.Header)
	}
	if res.Trailer.Get("X-End") != "reached" {
		t.Errorf("trailer = %v", res.Trailer)
	}
	if got := w.calls()[0].Header.Get("Traceparent"); !strings.Contains(got, "0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("traceparent at the API server = %q", got)
	}

	got := w.records.wait(t, audit.End, 1)
	record := audit.Record{
		Seq: 1, Call: 1, Stage: audit.End, Agent: agent(t, "edge-1"), Subject: "agent:edge-1", TokenID: "id-of-edge-1",
		Source: "10.1.2.3", UserAgent: "kubectl/v1.36.3", Verb: "update", Version: "v1", Resource: "configmaps", Namespace: "web", Name: "a:b",
		Decision: audit.Allow, DecidedBy: audit.Hub, Rule: "everything", HubDecision: audit.Allow, HubRule: "everything", Status: 409, AnsweredBy: audit.ByAPIServer, Result: audit.Complete,
		RequestBytes: 7, ResponseBytes: int64(len(want)), TraceID: "0af7651916cd43dd8448eb211c80319c",
	}
	if diff := cmp.Diff([]audit.Record{record}, got, cmpopts.IgnoreFields(audit.Record{}, "Time", "Process", "Seconds"), cmp.AllowUnexported(agent(t, "edge-1"))); diff != "" {
		t.Errorf("records (-want +got)\n%s", diff)
	}
	if age := time.Since(got[0].Time); age < 0 || age > time.Minute || got[0].Seconds <= 0 || !strings.HasPrefix(got[0].Process, "test/") {
		t.Errorf("record = %+v", got[0])
	}
}

// What is refused before it reaches the spoke, and why.
func TestRefused(t *testing.T) {
	onlyReads := access.Config{Enabled: true}
	w := start(t, func(http.ResponseWriter, *http.Request) { t.Error("a refused call reached the API server") }, settings{hubAccess: &onlyReads})
	auth := "Authorization: Bearer " + token("edge-1") + "\n"
	for name, c := range map[string]struct {
		message string
		code    int
		rule    string
	}{
		"no token":                     {"GET /agents/edge-1/version HTTP/1.1\nHost: h\n\n", 401, "token"},
		"two tokens":                   {"GET /agents/edge-1/version HTTP/1.1\nHost: h\n" + auth + auth + "\n", 401, "token"},
		"another scheme":               {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nAuthorization: Basic " + token("edge-1") + "\n\n", 401, "token"},
		"a token that is none":         {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nAuthorization: Bearer x.y.z\n\n", 401, "token"},
		"a token no one can check yet": {"GET /agents/edge-1/api/v1/pods HTTP/1.1\nHost: h\nAuthorization: Bearer " + unknownToken + "\n\n", 503, "token"},
		"two tokens in one line":       {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nAuthorization: Bearer " + token("edge-1") + ", Bearer x\n\n", 401, "token"},
		"the path of another agent":    {"GET /agents/edge-2/version HTTP/1.1\nHost: h\n" + auth + "\n", 403, "token"},
		"an agent that is none":        {"GET /agents/gone/version HTTP/1.1\nHost: h\nAuthorization: Bearer " + token("gone") + "\n\n", 403, "registry"},
		"another path":                 {"GET /version HTTP/1.1\nHost: h\n" + auth + "\n", 400, "path"},
		"no agent in the path":         {"GET /agents//version HTTP/1.1\nHost: h\n" + auth + "\n", 400, "path"},
		"an encoded agent":             {"GET /agents/edge%2D1/version HTTP/1.1\nHost: h\n" + auth + "\n", 400, "path"},
		"an agent in capitals":         {"GET /agents/Edge-1/version HTTP/1.1\nHost: h\n" + auth + "\n", 400, "path"},
		"an absolute target":           {"GET http://h/agents/edge-1/version HTTP/1.1\nHost: h\n" + auth + "\n", 400, "message"},
		"a target of all":              {"OPTIONS * HTTP/1.1\nHost: h\n" + auth + "\n", 400, "message"},
		"dot segments":                 {"GET /agents/edge-1/api/../../edge-2/version HTTP/1.1\nHost: h\n" + auth + "\n", 400, "message"},
		"encoded dot segments":         {"GET /agents/edge-1/%2e%2e/edge-2/version HTTP/1.1\nHost: h\n" + auth + "\n", 400, "message"},
		"an encoded slash":             {"GET /agents/edge-1/api%2fv1/pods HTTP/1.1\nHost: h\n" + auth + "\n", 400, "message"},
		"doubled slashes":              {"GET /agents/edge-1//api/v1/pods HTTP/1.1\nHost: h\n" + auth + "\n", 400, "message"},
		"a backslash":                  {"GET /agents/edge-1/api\\v1/pods HTTP/1.1\nHost: h\n" + auth + "\n", 400, "message"},
		"a method of elsewhere":        {"TRACE /agents/edge-1/version HTTP/1.1\nHost: h\n" + auth + "\n", 405, "message"},
		"a method that is a verb":      {"WATCH /agents/edge-1/api/v1/pods HTTP/1.1\nHost: h\n" + auth + "\n", 405, "message"},
		"Connection that hides":        {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nConnection: Authorization\n" + auth + "\n", 400, "message"},
		"an upgrade to HTTP/2":         {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AA\nUpgrade: h2c\n" + auth + "\n", 400, "message"},
		"an unknown upgrade":           {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nConnection: Upgrade\nUpgrade: h2c\n" + auth + "\n", 400, "message"},
		"several upgrades":             {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nConnection: Upgrade\nUpgrade: websocket, h2c\n" + auth + "\n", 400, "message"},
		"several lines of Upgrade":     {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nConnection: Upgrade\nUpgrade: websocket\nUpgrade: h2c\n" + auth + "\n", 400, "message"},
		"an upgrade nobody asks for":   {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nUpgrade: websocket\n" + auth + "\n", 400, "message"},
		"an upgrade with a body":       {"POST /agents/edge-1/api/v1/namespaces/a/pods/b/exec HTTP/1.1\nHost: h\nConnection: Upgrade\nUpgrade: SPDY/3.1\nContent-Length: 4\n" + auth + "\nGET ", 400, "message"},
		"a WebSocket by POST":          {"POST /agents/edge-1/api/v1/namespaces/a/pods/b/exec HTTP/1.1\nHost: h\nConnection: Upgrade\nUpgrade: websocket\n" + auth + "\n", 400, "message"},
		"HTTP/1.0":                     {"GET /agents/edge-1/version HTTP/1.0\nHost: h\n" + auth + "\n", 400, "message"},
		"an impersonation":             {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nImpersonate-User: admin\n" + auth + "\n", 403, "impersonation"},
		"half an impersonation":        {"GET /agents/edge-1/version HTTP/1.1\nHost: h\nImpersonate-Group: admins\n" + auth + "\n", 400, "message"},
		"a write":                      {"DELETE /agents/edge-1/api/v1/namespaces/a/pods/b HTTP/1.1\nHost: h\n" + auth + "\n", 403, "writes"},
		"a secret":                     {"GET /agents/edge-1/api/v1/namespaces/a/secrets/b HTTP/1.1\nHost: h\n" + auth + "\n", 403, "secrets"},
		"an exec":                      {"POST /agents/edge-1/api/v1/namespaces/a/pods/b/exec?command=rm HTTP/1.1\nHost: h\nConnection: Upgrade\nUpgrade: SPDY/3.1\n" + auth + "\n", 403, "exec"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.records.wait(t, audit.End, 0))
			res, _, _ := w.send(c.message)
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if said := sentence(t, res, string(body)); res.Code != c.code || said == "" {
				t.Errorf("answer %d %s, want %d", res.Code, body, c.code)
			}
			record := w.records.wait(t, audit.End, before+1)[before]
			if record.Decision != audit.Deny || record.Rule != c.rule || record.Status != c.code || record.DecidedBy != audit.Hub || record.AnsweredBy != audit.ByHub {
				t.Errorf("record %+v, want rule %s", record, c.rule)
			}
		})
	}
	if text := w.records.text.String(); strings.Contains(text, tokenKind) || strings.Contains(text, "command") {
		t.Error("the records hold a token or a query")
	}
}

func TestRefusedBySpoke(t *testing.T) {
	onlyReads := access.Config{Enabled: true}
	w := start(t, func(http.ResponseWriter, *http.Request) { t.Error("a refused call reached the API server") }, settings{spokeAccess: &onlyReads})
	res, body := w.do(w.request(t.Context(), http.MethodDelete, "/api/v1/namespaces/a/pods/b", nil))
	if s := status(t, body); s.Code != 403 || !strings.Contains(s.Message, "spoke") || !strings.Contains(s.Message, "writes") {
		t.Errorf("status = %+v", s)
	}
	for name := range res.Header {
		if strings.HasPrefix(name, "Argomesh-") {
			t.Errorf("header %s reached the caller", name)
		}
	}
	record := w.records.wait(t, audit.End, 1)[0]
	if record.Decision != audit.Deny || record.DecidedBy != audit.Spoke || record.Rule != "writes" || record.AnsweredBy != audit.ByAgent {
		t.Errorf("record = %+v", record)
	}
}

// The spoke sees that an upgrade is asked for, and decides about it.
func TestSessionRefusedBySpoke(t *testing.T) {
	noExec := everything()
	noExec.Exec = false
	w := start(t, func(http.ResponseWriter, *http.Request) { t.Error("a refused call reached the API server") }, settings{spokeAccess: &noExec})
	res, _, _ := w.upgrade("GET", "/apis/subresources.kubevirt.io/v1/namespaces/web/virtualmachineinstances/v/console", "websocket")
	if res.Code != http.StatusForbidden {
		t.Errorf("answer %d", res.Code)
	}
	record := w.records.wait(t, audit.End, 1)[0]
	if record.Decision != audit.Deny || record.DecidedBy != audit.Spoke || record.Rule != "exec" {
		t.Errorf("record = %+v", record)
	}
}

// An API server that does not know the agent says nothing of the caller's token.
func TestCredentialsOfTheAgent(t *testing.T) {
	tracked := everything()
	tracked.TrackedOnly = true
	for name, c := range map[string]struct {
		access *access.Config
		path   string
		code   int
		by     audit.Answerer
	}{
		"of an object":              {nil, "/api/v1/namespaces/web/pods/shop", 502, audit.ByAgent},
		"of discovery":              {nil, "/version", 502, audit.ByAgent},
		"at the look at the object": {&tracked, "/api/v1/namespaces/web/pods/shop", 502, audit.ByAgent},
		"of a service":              {nil, "/api/v1/namespaces/web/services/shop/proxy/", 401, audit.ByAPIServer},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","message":"Unauthorized","code":401}`)
			}, settings{spokeAccess: c.access})
			res, body := w.get(c.path)
			said := sentence(t, res, body)
			if res.Code != c.code || strings.Contains(said, "does not accept the agent's own credentials") != (c.code == 502) {
				t.Errorf("answer %d %s, want %d", res.Code, body, c.code)
			}
			if record := w.records.wait(t, audit.End, 1)[0]; record.Status != c.code || record.AnsweredBy != c.by || record.Result != audit.Complete {
				t.Errorf("record = %+v", record)
			}
		})
	}
}

// A header that is stripped reaches neither the API server nor the next hop's ears.
func TestStripped(t *testing.T) {
	impersonating := everything()
	impersonating.Impersonate = []string{"system:serviceaccount:web:deployer"}
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Argomesh-Refused-By", "forged")
		w.Header().Set("Set-Cookie", "a=b")
		_, _ = io.WriteString(w, "{}")
	}, settings{hubAccess: &impersonating, spokeAccess: &impersonating})
	r := w.request(t.Context(), http.MethodGet, "/api/v1/pods", nil)
	gone := []string{
		"X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scopes", "X-Remote-UID", "X-Forwarded-Client-Cert", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Forwarded-Proto", "X-Forwarded-Uri", "Forwarded", "X-Real-Ip", "X-Envoy-Original-Path", "X-Request-Id", "Cookie", "Proxy-Authorization", "Proxy-Connection",
		"Keep-Alive", "Te", "Idempotency-Key", "X-Idempotency-Key", "Argomesh-Tracked-Only", "Argomesh-Refused-By", "Baggage", "Expect",
		"Audit-Id",
	}
	for _, name := range gone {
		r.Header.Set(name, "x")
	}
	r.Header.Set("Te", "trailers")
	r.Header.Set("Expect", "100-continue")
	r.Header.Set("Sec-Websocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0")
	r.Header.Set("Impersonate-User", "system:serviceaccount:web:deployer")
	r.Header.Set("Accept", "application/json")
	res, _ := w.do(r)
	got := w.calls()[0].Header
	for _, name := range gone {
		if name == "Te" {
			continue // ours to the next hop: we take trailers
		}
		if value, found := got[name]; found {
			t.Errorf("%s: %v reached the API server", name, value)
		}
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer of-the-agent", "Sec-Websocket-Protocol": "v5.channel.k8s.io",
		"Impersonate-User": "system:serviceaccount:web:deployer", "Accept": "application/json",
	} {
		if diff := cmp.Diff([]string{want}, got[name]); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	if res.Header.Get("Argomesh-Refused-By") != "" || res.Header.Get("Set-Cookie") != "" {
		t.Errorf("header of the answer = %v", res.Header)
	}
	if record := w.records.wait(t, audit.End, 1)[0]; record.Decision != audit.Allow || record.AsUser != "system:serviceaccount:web:deployer" {
		t.Errorf("record = %+v: the API server spoke for the agent", record)
	}
}

// A message that carries both lengths is one message: what follows it is not taken
// for another one behind us.
func TestBothLengths(t *testing.T) {
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprintf(w, "%s|%v|%d", body, r.TransferEncoding, r.ContentLength)
	}, settings{})
	res, _, _ := w.send("POST /agents/edge-1/api/v1/namespaces HTTP/1.1\nHost: h\nAuthorization: Bearer " + token("edge-1") +
		"\nContent-Length: 3\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n")
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if string(body) != "hello|[chunked]|-1" || len(w.calls()) != 1 {
		t.Errorf("answer %q after %d calls", body, len(w.calls()))
	}
}

func TestUnreadableLengths(t *testing.T) {
	w := start(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") }, settings{})
	for name, lengths := range map[string]string{
		"two lengths":         "Content-Length: 3\nContent-Length: 4\n",
		"a list of lengths":   "Content-Length: 3, 4\n",
		"another encoding":    "Transfer-Encoding: gzip, chunked\n",
		"two encodings":       "Transfer-Encoding: chunked\nTransfer-Encoding: identity\n",
		"a space before it":   "Content-Length : 3\n",
		"a nul in a header":   "Accept: a\x00b\n",
		"a sign":              "Content-Length: +3\n",
		"an encoding in tabs": "Transfer-Encoding: \vchunked\n",
	} {
		t.Run(name, func(t *testing.T) {
			res, _, _ := w.send("POST /agents/edge-1/api/v1/namespaces HTTP/1.1\nHost: h\nAuthorization: Bearer " + token("edge-1") + "\n" + lengths + "\nabc")
			if res.Code != http.StatusBadRequest && res.Code != http.StatusNotImplemented {
				t.Errorf("answer %d", res.Code)
			}
		})
	}
}

func TestRedirectsAreNotPassedOn(t *testing.T) {
	for name, c := range map[string]struct {
		code     int
		location []string
	}{
		"to a host":              {307, []string{"http://169.254.169.254/"}},
		"to another scheme":      {301, []string{"javascript:alert(1)"}},
		"to a host by its slash": {301, []string{"//evil.example/api"}},
		"to a host, backwards":   {301, []string{`/\evil.example/api`}},
		"to a user of a host":    {301, []string{"https://a:b@evil.example/api"}},
		"out of the agent":       {301, []string{"/../edge-2/version"}},
		"out of it, encoded":     {301, []string{"/%2e%2e/edge-2/version"}},
		"with an encoded slash":  {301, []string{"/..%2fedge-2/version"}},
		"with doubled slashes":   {301, []string{"/api//v1"}},
		"to what is relative":    {301, []string{"v2/"}},
		"to a query":             {301, []string{"?x=y"}},
		"to a fragment":          {301, []string{"/api#x"}},
		"to what cannot be read": {301, []string{"/%zz"}},
		"to nothing":             {301, nil},
		"to two places":          {301, []string{"/api", "/apis"}},
		"to a proxy":             {305, []string{"/api"}},
		"to one of many":         {300, []string{"/api"}},
		"to what nobody knows":   {399, []string{"/api"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Location"] = c.location
				w.WriteHeader(c.code)
			}, settings{})
			res, body := w.get("/api/v1/pods")
			if s := status(t, body); res.Code != http.StatusBadGateway || s.Code != http.StatusBadGateway || res.Header.Get("Location") != "" {
				t.Errorf("answer %d %s, Location %q", res.Code, body, res.Header.Get("Location"))
			}
		})
	}
}

// A redirect within the spoke's API server is one within the paths of its agent, also
// where the API server has an address with a path, which it may know of or not.
func TestRedirectsWithinTheSpoke(t *testing.T) {
	const stale, fresh = "/openapi/v3/apis/apps/v1?hash=OLD", "/openapi/v3/apis/apps/v1?hash=NEW"
	const service = "/api/v1/namespaces/web/services/https:shop:/proxy"
	for name, c := range map[string]struct {
		base, path, location, want string
		code                       int
	}{
		"an old hash":                      {"", stale, fresh, fresh, 301},
		"a service without its slash":      {"", service + "?x=y", service + "/?x=y", service + "/?x=y", 301},
		"of the service":                   {"", service + "/", service + "/login?next=%2Fa", service + "/login?next=%2Fa", 302},
		"that keeps its method":            {"", service + "/", service + "/a%3Ab", service + "/a%3Ab", 308},
		"to the root":                      {"", service + "/", "/", "/", 303},
		"of a server that knows its base":  {"/k8s/clusters/c-1", stale, "/k8s/clusters/c-1" + fresh, fresh, 301},
		"of a server that knows it not":    {"/k8s/clusters/c-1/", stale, fresh, fresh, 301},
		"to a path that begins like it":    {"/k8s", stale, "/k8s-other" + fresh, "/k8s-other" + fresh, 307},
		"with a base that is only a slash": {"/", stale, fresh, fresh, 301},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", c.location)
				w.WriteHeader(c.code)
			}, settings{spoke: func(s *spoke.Config) { s.REST.Host += c.base }})
			res, body := w.get(c.path)
			if got := res.Header.Get("Location"); res.Code != c.code || got != "/agents/edge-1"+c.want {
				t.Errorf("answer %d %s, Location %q, want %q", res.Code, body, got, "/agents/edge-1"+c.want)
			}
			if asked := w.calls()[0].RequestURI; asked != strings.TrimSuffix(c.base, "/")+c.path {
				t.Errorf("the API server was asked for %s", asked)
			}
			if record := w.records.wait(t, audit.End, 1)[0]; record.Status != c.code || record.AnsweredBy != audit.ByAPIServer {
				t.Errorf("record = %+v", record)
			}
		})
	}
}

func TestAgentAway(t *testing.T) {
	w := start(t, func(http.ResponseWriter, *http.Request) {}, settings{})
	w.setAway(true)
	res, body := w.get("/api/v1/namespaces/a/pods/b")
	if s := status(t, body); res.Code != 503 || !strings.Contains(s.Message, "edge-1") || res.Header.Get("Retry-After") != "" {
		t.Errorf("answer %d %s", res.Code, body)
	}
	if record := w.records.wait(t, audit.End, 1)[0]; record.Result != audit.AgentGone || record.Status != 503 || record.Decision != audit.Allow {
		t.Errorf("record = %+v", record)
	}
}

// What breaks off in the middle does not look whole, with a length or without.
func TestAgentLostInMidStream(t *testing.T) {
	for name, length := range map[string]string{"chunked": "", "with a length": "1000"} {
		t.Run(name, func(t *testing.T) {
			w := start(t, func(w http.ResponseWriter, r *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, settings{})
			res, err := w.client().Do(w.request(t.Context(), http.MethodGet, "/api/v1/pods?watch=true", nil))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			half := make([]byte, 4)
			if _, err := io.ReadFull(res.Body, half); err != nil || string(half) != "half" {
				t.Fatalf("read %q, %v", half, err)
			}
			w.cut()
			if rest, err := io.ReadAll(res.Body); err == nil || len(rest) > 0 {
				t.Errorf("then read %q, %v: want an error", rest, err)
			}
			if record := w.records.wait(t, audit.End, 1)[0]; record.Result != audit.AgentGone || record.Status != 200 || record.ResponseBytes != 4 {
				t.Errorf("record = %+v", record)
			}
			if open := w.records.wait(t, audit.Open, 1)[0]; open.Call != 1 || open.Verb != "watch" || open.Status != 0 || open.Seq != 1 {
				t.Errorf("record = %+v", open)
			}
		})
	}
}

func TestAgentLostBeforeItAnswers(t *testing.T) {
	asked := make(chan struct{})
	w := start(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done()
	}, settings{})
	go func() {
		<-asked
		w.cut()
	}()
	res, body := w.do(w.request(t.Context(), http.MethodPost, "/api/v1/namespaces", strings.NewReader("{}")))
	if s := status(t, body); res.Code != 502 || s.Code != 502 {
		t.Errorf("answer %d %s", res.Code, body)
	}
}

// A call on a connection that died meanwhile: a GET is made again on another one, what
// changes something is not.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		method string
		want   int
	}{{http.MethodGet, 200}, {http.MethodPost, 502}, {http.MethodDelete, 502}, {http.MethodPatch, 502}} {
		t.Run(c.method, func(t *testing.T) {
			var dials, arrived atomic.Int32
			w := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, settings{hub: func(cfg *resource.HubConfig) {
				tunnel := cfg.Dial
				cfg.Dial = func(ctx context.Context, to identity.AgentName) (net.Conn, error) {
					if dials.Add(1) > 1 {
						return tunnel(ctx, to)
					}
					// The first connection answers one call, reads the next and dies.
					here, there := pair(t)
					go func() {
						defer func() { _ = there.Close() }()
						reader := bufio.NewReader(there)
						for turn := range 2 {
							r, err := http.ReadRequest(reader)
							if err != nil {
								return
							}
							if _, err := io.Copy(io.Discard, r.Body); err != nil {
								return
							}
							arrived.Add(1)
							if turn == 0 {
								_, _ = io.WriteString(there, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
							}
						}
					}()
					return here, nil
				}
			}})
			if res, _ := w.get("/api/v1/namespaces/a"); res.Code != 200 {
				t.Fatalf("first call: %d", res.Code)
			}
			r := w.request(t.Context(), c.method, "/api/v1/namespaces/a", nil)
			r.Header.Set("Idempotency-Key", "x")
			res, _ := w.do(r)
			if res.Code != c.want || arrived.Load() != 2 {
				t.Errorf("answer %d after %d arrivals on the first connection, want %d after 2", res.Code, arrived.Load(), c.want)
			}
			if again := len(w.calls()); (again == 1) != (c.want == 200) {
				t.Errorf("%d calls on another connection", again)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	release := make(chan struct{})
	inside := make(chan struct{}, 8)
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "{}")
	}, settings{hub: func(c *resource.HubConfig) { c.MaxCallsPerAgent, c.MaxCalls = 2, 3 }})
	answers := make(chan int, 2)
	for range 2 {
		r := w.request(t.Context(), http.MethodGet, "/api/v1/pods", nil)
		client := w.client()
		go func() {
			res, err := client.Do(r)
			if err != nil {
				answers <- 0
				return
			}
			_ = res.Body.Close()
			answers <- res.StatusCode
		}()
		<-inside
	}
	res, body := w.get("/api/v1/pods")
	if s := status(t, body); res.Code != 429 || s.Code != 429 || res.Header.Get("Retry-After") != "1" {
		t.Errorf("answer %d %s", res.Code, body)
	}
	close(release)
	for range 2 {
		if code := <-answers; code != 200 {
			t.Errorf("a call below the limit was answered %d", code)
		}
	}
	w.records.wait(t, audit.End, 3)
	if res, _ := w.get("/api/v1/pods"); res.Code != 200 {
		t.Errorf("after them %d", res.Code)
	}
}

// The spoke's owner bounds how many calls the hub begins, those that are refused included.
func TestCallsPerSecond(t *testing.T) {
	var asked atomic.Int64
	withoutNodes := everything()
	withoutNodes.Nodes = false
	w := start(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "{}")
	}, settings{spokeAccess: &withoutNodes, spoke: func(c *spoke.Config) { c.CallsPerSecond = 1 }})
	const atOnce = 10
	begin := time.Now()
	for i := range atOnce {
		path, want := "/api/v1/pods", http.StatusOK
		if i%2 == 1 {
			path, want = "/api/v1/nodes", http.StatusForbidden
		}
		if res, body := w.get(path); res.Code != want {
			t.Fatalf("call %d of the burst: %d %s", i, res.Code, body)
		}
	}
	refused := 0
	for range atOnce {
		res, body := w.get("/api/v1/pods")
		if res.Code == http.StatusOK {
			continue
		}
		refused++
		s := status(t, body)
		if s.Code != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || !strings.Contains(s.Message, "live_access.calls_per_second") {
			t.Errorf("answer %d %s", res.Code, body)
		}
	}
	more := int(time.Since(begin).Seconds()) + 1 // what came back meanwhile
	if refused < atOnce-more {
		t.Errorf("%d of %d calls beyond the burst were refused, want %d at least", refused, atOnce, atOnce-more)
	}
	if got, most := asked.Load(), int64(atOnce/2+more); got > most {
		t.Errorf("the API server was asked %d times, want %d at most", got, most)
	}
	recorded := 0
	for _, r := range w.records.wait(t, audit.End, 2*atOnce) {
		if r.Decision == audit.Deny && r.DecidedBy == "spoke" && r.Rule == "rate" {
			recorded++
		}
	}
	if recorded != refused {
		t.Errorf("%d calls were recorded as refused by rule rate, want %d", recorded, refused)
	}
	for { // what is left comes back
		if res, _ := w.get("/api/v1/pods"); res.Code == http.StatusOK {
			return
		}
		if t.Context().Err() != nil || time.Since(begin) > time.Minute {
			t.Fatal("no call passes any more")
		}
	}
}

// Events arrive when they are made, not when there are more.
func TestWatchIsNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.Flush()
		for i := range 3 {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			_, _ = fmt.Fprintf(w, "event %d\n", i)
			_ = control.Flush()
		}
	}, settings{})
	res, err := w.client().Do(w.request(t.Context(), http.MethodGet, "/api/v1/pods?watch=true", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for i := range 3 {
		next <- struct{}{}
		if !lines.Scan() || lines.Text() != fmt.Sprintf("event %d", i) {
			t.Fatalf("event %d: %q, %v", i, lines.Text(), lines.Err())
		}
	}
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the last event: %q, %v", lines.Text(), lines.Err())
	}
	if record := w.records.wait(t, audit.End, 1)[0]; record.Result != audit.Complete {
		t.Errorf("record = %+v", record)
	}
}

func TestCallerThatLeavesEndsItsCall(t *testing.T) {
	ended := make(chan struct{})
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	}, settings{})
	ctx, leave := context.WithCancel(t.Context())
	res, err := w.client().Do(w.request(ctx, http.MethodGet, "/api/v1/pods?watch=true", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	leave()
	<-ended
	if record := w.records.wait(t, audit.End, 1)[0]; record.Result != audit.CallerGone {
		t.Errorf("record = %+v", record)
	}
}

// A caller that does not read holds up its own call, and little memory.
func TestCallerThatNeverReads(t *testing.T) {
	var wrote atomic.Int64
	stuck := make(chan struct{})
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/pods" {
			_, _ = io.WriteString(w, "{}")
			return
		}
		control := http.NewResponseController(w)
		block := bytes.Repeat([]byte("x"), 64<<10)
		for range 4096 { // 256 MiB
			if err := control.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Error(err)
			}
			n, err := w.Write(block)
			wrote.Add(int64(n))
			if err != nil {
				close(stuck)
				return
			}
		}
	}, settings{})
	conn := w.connect()
	if _, err := io.WriteString(conn, "GET /agents/edge-1/api/v1/pods HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "+token("edge-1")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if res, _ := w.get("/api/v1/namespaces/a"); res.Code != 200 {
			t.Fatalf("call %d beside it: %d", i, res.Code)
		}
	}
	<-stuck
	if n := wrote.Load(); n > 16<<20 {
		t.Errorf("the API server could write %d bytes that nobody read", n)
	}
}

func TestBodyThatDoesNotCome(t *testing.T) {
	w := start(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, settings{
		hub: func(c *resource.HubConfig) { c.BodyTimeout = 50 * time.Millisecond },
	})
	res, _, _ := w.send("POST /agents/edge-1/api/v1/namespaces HTTP/1.1\nHost: h\nAuthorization: Bearer " + token("edge-1") + "\nContent-Length: 10\n\nabc")
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if s := status(t, string(body)); res.Code != 408 || s.Code != 408 {
		t.Errorf("answer %d %s", res.Code, body)
	}
	if record := w.records.wait(t, audit.End, 1)[0]; record.Result != audit.CallerGone || record.RequestBytes != 3 {
		t.Errorf("record = %+v", record)
	}
}

// A header that never ends is given up, and one that is too long is refused.
func TestHeaderLimits(t *testing.T) {
	w := start(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") }, settings{})
	res, _, _ := w.send("GET /agents/edge-1/version HTTP/1.1\nHost: h\nX: " + strings.Repeat("x", 128<<10) + "\n\n")
	if res.Code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answer %d", res.Code)
	}
}

// A spoke that answers without end costs what is on its way: a header is given up, and
// a body goes on for as long as someone reads it.
func TestSpokeWithoutEnd(t *testing.T) {
	for name, test := range map[string]struct {
		begin, more string
		want        int
		result      audit.Result
	}{
		"in its header": {"HTTP/1.1 200 OK\r\n", "X-More: " + strings.Repeat("x", 1<<10) + "\r\n", http.StatusBadGateway, audit.AgentGone},
		"in one line":   {"HTTP/1.1 200 OK\r\nX-More: ", strings.Repeat("x", 1<<10), http.StatusBadGateway, audit.AgentGone},
		"in its chunks": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "400\r\n" + strings.Repeat("x", 1<<10) + "\r\n", http.StatusOK, audit.CallerGone},
	} {
		t.Run(name, func(t *testing.T) {
			wrote := make(chan int, 1)
			w := start(t, nil, settings{hub: func(c *resource.HubConfig) {
				c.Dial = func(context.Context, identity.AgentName) (net.Conn, error) {
					here, there := pair(t)
					go func() {
						defer func() { _ = there.Close() }()
						if _, err := http.ReadRequest(bufio.NewReader(there)); err != nil {
							t.Error(err)
						}
						n, _ := io.WriteString(there, test.begin)
						for {
							more, err := io.WriteString(there, test.more)
							if n += more; err != nil {
								wrote <- n
								return
							}
						}
					}()
					return here, nil
				}
			}})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			res, err := w.client().Do(w.request(ctx, http.MethodGet, "/version", nil))
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != test.want {
				t.Errorf("answer %d", res.StatusCode)
			}
			if test.want == http.StatusOK { // some of it, and no more
				if _, err := io.CopyN(io.Discard, res.Body, 1<<20); err != nil {
					t.Error(err)
				}
				leave()
			}
			_ = res.Body.Close()
			if n := <-wrote; n > 8<<20 {
				t.Errorf("the spoke could write %d bytes", n)
			}
			if record := w.records.wait(t, audit.End, 1)[0]; record.Result != test.result {
				t.Errorf("record = %+v", record)
			}
		})
	}
}

// A hub that stops ends what goes on and on, and says so.
func TestStop(t *testing.T) {
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, settings{})
	res, err := w.client().Do(w.request(t.Context(), http.MethodGet, "/api/v1/pods?watch=true", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	w.stopHub()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the watch ended as if it were complete")
	}
	if record := w.records.wait(t, audit.End, 1)[0]; record.Result != audit.Stopped {
		t.Errorf("record = %+v", record)
	}
}

func TestNewHub(t *testing.T) {
	if _, err := resource.NewHub(resource.HubConfig{}); err == nil {
		t.Error("a hub without anything was made")
	}
	if _, err := spoke.New(spoke.Config{}); err == nil {
		t.Error("a spoke without anything was made")
	}
}
