//go:build linux

package envoy

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
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/kit"
)

// Envoy lets a good token through to its agent, with the path and the token as they
// came, and with nothing that only a proxy may say.
func TestEnvoyForwards(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	token := f.signer.token(t, "a")
	path := "/agents/a/api/v1/namespaces/x/pods/y:z~%20?watch=1&name=..%2Fb"
	status, body := f.raw(t, "PATCH "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+token+"\r\nConnection: close\r\n"+
		"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"+
		"X-Forwarded-Client-Cert: URI=spiffe://x/y\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Host: evil\r\nForwarded: for=9.9.9.9\r\n"+
		"X-Remote-User: root\r\nX-Remote-Extra-Foo: bar\r\nX-Envoy-Original-Path: /agents/b/\r\nX-Envoy-Upstream-Rq-Timeout-Ms: 1\r\n"+
		"X-Request-Id: mine\r\nX-Real-Ip: 9.9.9.9\r\nImpersonate-User: alice\r\nContent-Length: 0\r\n\r\n")
	if status != http.StatusOK || body != "PATCH "+path {
		t.Fatalf("answer is %d %q", status, body)
	}
	got := f.upstream.request().Header
	for name, want := range map[string]string{
		"Authorization":    "Bearer " + token, // the principal verifies it again
		"Traceparent":      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Impersonate-User": "alice", // for the principal to judge
	} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
	if id := got.Get("X-Request-Id"); id == "mine" || id == "" {
		t.Errorf("X-Request-Id is %q, want one of Envoy's own", id)
	}
	if from := got.Values("X-Forwarded-For"); len(from) != 1 || net.ParseIP(from[0]) == nil {
		t.Errorf("X-Forwarded-For is %q, want the caller's address", from)
	}
	for name, values := range got {
		for _, value := range values {
			if strings.Contains(value, "9.9.9.9") || strings.HasPrefix(name, "X-Envoy-") || strings.HasPrefix(name, "X-Remote-") ||
				name == "X-Forwarded-Client-Cert" || name == "X-Forwarded-Host" || name == "Forwarded" {
				t.Errorf("%s: %s gets through", name, value)
			}
		}
	}
	env.Eventually(t, "the access log has the request", func() error {
		log, err := os.ReadFile(f.envoy.LogFile())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			var entry map[string]any
			if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &entry) != nil || entry["method"] != "PATCH" {
				continue
			}
			if entry["subject"] != "a" || entry["token"] != "id-of-a" || entry["path"] != "/agents/a/api/v1/namespaces/x/pods/y:z~%20" || entry["status"] != float64(200) {
				t.Errorf("the access log says %s", line)
			}
			return nil
		}
		return errors.New("no line of that method")
	})
	log, err := os.ReadFile(f.envoy.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if signature := token[strings.LastIndex(token, ".")+1:]; strings.Contains(string(log), signature) || strings.Contains(string(log), "watch=1") {
		t.Error("Envoy logs a token or a query")
	}
}

// Other ways to send and to ask than GET and a length: a body in pieces whose caller waits
// to be told to go on, as curl and some clients do, and HEAD.
func TestEnvoyPassesBodies(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	piece := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	var want []byte
	for range 32 {
		want = append(want, piece...)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://"+f.address+"/agents/a/body", io.MultiReader(bytes.NewReader(want[:1]), bytes.NewReader(want[1:])))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+f.signer.token(t, "a"))
	request.Header.Set("Expect", "100-continue")
	client := f.client()
	client.Transport.(*http.Transport).ExpectContinueTimeout = 20 * time.Second
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !bytes.Equal(got, want) {
		t.Errorf("%d bytes in pieces come back as %d, %d, %v", len(want), response.StatusCode, len(got), err)
	}
	head, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "https://"+f.address+"/agents/a/version", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	head.Header.Set("Authorization", "Bearer "+f.signer.token(t, "a"))
	answer, err := f.client().Do(head)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || len(body) != 0 || answer.ContentLength <= 0 {
		t.Errorf("HEAD is answered %d with %q, length %d, %v", answer.StatusCode, body, answer.ContentLength, err)
	}
}

// What must not pass does not reach the principal, and gets a Kubernetes Status.
func TestEnvoyRefuses(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	good := f.signer.token(t, "a")
	same := newSigner(t, f.signer.id)
	set := func(name string, value any) func(map[string]any) {
		return func(claims map[string]any) { claims[name] = value }
	}
	past, future := time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix()
	tokens := map[string]struct {
		token  string
		status int
	}{
		"of another agent":             {f.signer.token(t, "b"), 403},
		"of an agent with a like name": {f.signer.token(t, "aa"), 403},
		"of an agent in capitals":      {f.signer.token(t, "A"), 403},
		"expired":                      {f.signer.token(t, "a", set("exp", past)), 401},
		"not valid yet":                {f.signer.token(t, "a", set("nbf", future)), 401},
		"without an end":               {f.signer.token(t, "a", func(c map[string]any) { delete(c, "exp") }), 401},
		"of another issuer":            {f.signer.token(t, "a", set("iss", "https://elsewhere.test")), 401},
		"for another audience":         {f.signer.token(t, "a", set("aud", []string{"elsewhere"})), 403},
		"for no audience":              {f.signer.token(t, "a", func(c map[string]any) { delete(c, "aud") }), 403},
		"without a subject":            {f.signer.token(t, "a", func(c map[string]any) { delete(c, "sub") }), 403},
		"with several subjects":        {f.signer.token(t, "a", set("sub", []string{"a", "b"})), 401},
		"of a key with the same id":    {same.token(t, "a"), 401},
		"of a key that is unknown":     {newSigner(t, "key-9").token(t, "a"), 401},
		"signed with the public key":   {f.symmetric(t, "a"), 401},
		"not signed":                   {unsigned(good), 401},
		"with a signature of another":  {good[:strings.LastIndex(good, ".")] + good[strings.LastIndex(good, "."):][:10], 401},
		"two in one":                   {good + ", Bearer " + f.signer.token(t, "b"), 401},
		"none":                         {"", 401},
		"longer than headers can be":   {good + strings.Repeat("x", 70<<10), 431},
	}
	for name, c := range tokens {
		t.Run("token "+name, func(t *testing.T) {
			before := f.upstream.requests.Load()
			status, body := f.get(t, "/agents/a/version", c.token)
			if status != c.status {
				t.Errorf("answer is %d %s, want %d", status, body, c.status)
			}
			f.refused(t, before, status, body)
		})
	}
	ask := func(method, target, headers string) string {
		return method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + "Content-Length: 0\r\n\r\n"
	}
	bearer := "Authorization: Bearer " + good + "\r\n"
	other := "Authorization: Bearer " + f.signer.token(t, "c") + "\r\n"
	requests := map[string]struct {
		request string
		status  int
	}{
		"another agent":                      {ask("GET", "/agents/b/version", bearer), 403},
		"another agent by an absolute URI":   {ask("GET", "https://x/agents/b/version", bearer), 403},
		"an agent that does not exist":       {ask("GET", "/agents/c/version", other), 404},
		"nothing below agents":               {ask("GET", "/agents/a", bearer), 404},
		"a like path":                        {ask("GET", "/agentsx/a/version", bearer), 404},
		"another tree":                       {ask("GET", "/x/a/version", bearer), 404},
		"the root":                           {ask("GET", "/", bearer), 404},
		"the agent in capitals":              {ask("GET", "/agents/A/version", bearer), 404},
		"the agent encoded":                  {ask("GET", "/agents/%61/version", bearer), 404},
		"dots":                               {ask("GET", "/agents/a/../b/version", bearer), 403},
		"dots at the end":                    {ask("GET", "/agents/a/..", bearer), 403},
		"one dot":                            {ask("GET", "/agents/a/./version", bearer), 403},
		"encoded dots":                       {ask("GET", "/agents/a/%2e%2E/b/version", bearer), 403},
		"half encoded dots":                  {ask("GET", "/agents/a/.%2e/b/version", bearer), 403},
		"doubled slashes":                    {ask("GET", "/agents/a//b/version", bearer), 403},
		"doubled slashes at the start":       {ask("GET", "//agents/a/version", bearer), 403},
		"an encoded slash":                   {ask("GET", "/agents/a%2fversion", bearer), 400},
		"an encoded slash after dots":        {ask("GET", "/agents/a/..%2Fb/version", bearer), 400},
		"an encoded backslash":               {ask("GET", "/agents/a/..%5cb/version", bearer), 400},
		"a backslash":                        {ask("GET", `/agents/a/..\b\version`, bearer), 403},
		"an encoded zero":                    {ask("GET", "/agents/a/%00/version", bearer), 403},
		"a fragment":                         {ask("GET", "/agents/a/#/../b", bearer), 400},
		"the asterisk":                       {ask("OPTIONS", "*", bearer), 404},
		"TRACE":                              {ask("TRACE", "/agents/a/version", bearer), 403},
		"a method that is none":              {ask("BREW", "/agents/a/version", bearer), 400},
		"CONNECT":                            {ask("CONNECT", "x:443", bearer), 403},
		"the token as a parameter":           {ask("GET", "/agents/a/version?access_token="+good, ""), 401},
		"the token as a cookie":              {ask("GET", "/agents/a/version", "Cookie: token="+good+"\r\n"), 401},
		"the token with another scheme":      {ask("GET", "/agents/a/version", "Authorization: Basic "+good+"\r\n"), 401},
		"two lengths":                        {ask("POST", "/agents/a/version", bearer+"Content-Length: 5\r\n"), 400},
		"length and chunks":                  {ask("POST", "/agents/a/version", bearer+"Transfer-Encoding: chunked\r\n"), 400},
		"an upgrade that is not spoken here": {ask("GET", "/agents/a/version", bearer+"Upgrade: foo\r\nConnection: Upgrade\r\n"), 403},
		"more headers than are read":         {ask("GET", "/agents/a/version", bearer+strings.Repeat("X: y\r\n", 300)), 431},
	}
	for name, c := range requests {
		t.Run(name, func(t *testing.T) {
			before := f.upstream.requests.Load()
			status, body := f.raw(t, c.request)
			if status != c.status {
				t.Errorf("answer is %d %s, want %d", status, body, c.status)
			}
			f.refused(t, before, status, body)
		})
	}
}

// refused checks that a refusal is a Status, and that no one upstream was asked.
func (f *front) refused(t *testing.T, before int64, status int, body string) {
	t.Helper()
	if n := f.upstream.requests.Load() - before; n != 0 {
		t.Errorf("%d requests reach the principal", n)
	}
	if body == "" {
		return // the codec refused before there was a request
	}
	var s struct {
		Kind, APIVersion, Status, Message, Reason string
		Code                                      int
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatalf("the answer is no JSON: %v: %s", err, body)
	}
	if s.Kind != "Status" || s.APIVersion != "v1" || s.Status != "Failure" || s.Code != status || s.Reason == "" ||
		!strings.HasPrefix(s.Message, "refused by the hub's front door: ") {
		t.Errorf("the answer is not a Status that says who refuses: %s", body)
	}
	why := map[int]string{http.StatusForbidden: "the token is not for this agent", http.StatusNotFound: "not registered, or suspended"}[status]
	if !strings.Contains(s.Message, why) {
		t.Errorf("the answer does not say %q: %s", why, body)
	}
}

// Bytes behind an upgrade that the principal refuses are no request of their own:
// they have not been judged.
func TestEnvoyUpgradesSmuggleNothing(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	bearer := "Authorization: Bearer " + f.signer.token(t, "a") + "\r\n"
	smuggled := "GET /agents/b/smuggled HTTP/1.1\r\nHost: x\r\nX-Remote-User: root\r\nX-Forwarded-Client-Cert: URI=x\r\n\r\n"
	for _, upgrade := range []string{"websocket", "SPDY/3.1", "h2c"} {
		for _, length := range []string{"", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n"} {
			t.Run(upgrade+" "+strings.TrimSpace(length), func(t *testing.T) {
				status, _ := f.raw(t, "GET /agents/a/deny HTTP/1.1\r\nHost: x\r\n"+bearer+length+
					"Connection: Upgrade\r\nUpgrade: "+upgrade+"\r\n\r\n"+smuggled)
				if status == http.StatusOK {
					t.Errorf("answer is %d", status)
				}
				f.upstream.mu.Lock()
				defer f.upstream.mu.Unlock()
				if f.upstream.behind != "" {
					t.Errorf("the principal gets %q behind the request", f.upstream.behind)
				}
			})
		}
	}
}

// symmetric signs a token with the public key as a shared secret.
func (f *front) symmetric(t *testing.T, agent string) string {
	t.Helper()
	public, err := f.signer.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	made, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: public, KeyID: f.signer.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(made).Claims(map[string]any{
		"iss": tokenIssuer, "aud": tokenAudience, "sub": agent, "exp": time.Now().Add(time.Hour).Unix(),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// unsigned is a token with the claims of another and the algorithm none.
func unsigned(token string) string {
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"key-1"}`))
	return header + "." + strings.Split(token, ".")[1] + "."
}

// tokenHits counts the tokens whose signature Envoy did not look at again.
const tokenHits = "http.resource_proxy.jwt_authn.tokens.jwt_cache_hit"

// A token that Envoy remembers is good for the same agent, and no longer than one that
// comes for the first time.
func TestEnvoyRemembersTokens(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	lasting := f.signer.token(t, "a")
	ending := f.signer.token(t, "a", func(claims map[string]any) {
		claims["exp"] = time.Now().Add(30*time.Second - f.snapshot.ResourceProxy.Tokens.Leeway).Unix()
	})
	remembered := map[string]float64{}
	for name, token := range map[string]string{"lasting": lasting, "ending": ending} {
		before := f.stat(t, tokenHits)
		env.Eventually(t, "Envoy remembers a token", func() error {
			if status, body := f.get(t, "/agents/a/version", token); status != http.StatusOK {
				return fmt.Errorf("the %s token gets %d %s", name, status, body)
			}
			if remembered[name] = f.stat(t, tokenHits) - before; remembered[name] == 0 {
				return errors.New("it was looked at each time")
			}
			return nil
		})
	}
	if status, body := f.get(t, "/agents/b/version", lasting); status != http.StatusForbidden {
		t.Errorf("on the path of another agent a remembered token gets %d %s", status, body)
	}
	env.Eventually(t, "a remembered token ends", func() error {
		if status, body := f.get(t, "/agents/a/version", ending); status != http.StatusUnauthorized {
			return fmt.Errorf("it gets %d %s", status, body)
		}
		return nil
	})
	if status, body := f.get(t, "/agents/a/version", lasting); status != http.StatusOK {
		t.Errorf("the other gets %d %s", status, body)
	}
	second := newSigner(t, "key-2")
	f.change(t, func(p *mesh.ResourceProxy) { p.Tokens.Keys = []mesh.Key{second.public()} })
	f.acknowledged(t, "key-2")
	if status, body := f.get(t, "/agents/a/version", lasting); status != http.StatusUnauthorized {
		t.Errorf("a remembered token of a key that is gone gets %d %s", status, body)
	}
}

// A watch, a WebSocket and a SPDY upgrade go on while keys rotate, agents come and go,
// certificates and their authority rotate, and the xDS server restarts, all for
// longer than Envoy drains.
func TestEnvoyStreamsSurvive(t *testing.T) {
	t.Parallel()
	f := newFront(t, func(f *front, _ *mesh.Snapshot) { f.life = shortLife })
	live := []*liveStream{
		f.open(t, "/agents/a/watch", ""), f.open(t, "/agents/a/exec", "websocket"), f.open(t, "/agents/a/exec", "SPDY/3.1"),
	}
	alive := func(after string) {
		t.Helper()
		beyond := time.NewTimer(beyondDrain)
		defer beyond.Stop()
		for _, s := range live {
			s.check(t, after)
		}
		<-beyond.C
		for _, s := range live {
			s.check(t, after+", and the drain time")
		}
	}
	alive("nothing")

	second := newSigner(t, "key-2")
	f.change(t, func(p *mesh.ResourceProxy) { p.Tokens.Keys = append(p.Tokens.Keys, second.public()) })
	f.acknowledged(t, "key-1", "key-2")
	if status, body := f.get(t, "/agents/a/version", second.token(t, "a")); status != http.StatusOK {
		t.Errorf("a token of a key that Envoy has taken gets %d %s", status, body)
	}
	f.change(t, func(p *mesh.ResourceProxy) { p.Tokens.Keys = p.Tokens.Keys[1:] })
	f.acknowledged(t, "key-2")
	if status, body := f.get(t, "/agents/a/version", f.signer.token(t, "a")); status != http.StatusUnauthorized {
		t.Errorf("a token of a key that is gone gets %d %s", status, body)
	}
	f.change(t, func(p *mesh.ResourceProxy) { p.Tokens.Keys = nil })
	env.Eventually(t, "without a key nobody passes", func() error {
		status, body, err := f.tryGet(t.Context(), "/agents/a/version", second.token(t, "a"))
		if err != nil || status != http.StatusForbidden {
			return fmt.Errorf("answer is %d %s: %w", status, body, err)
		}
		return nil
	})
	f.change(t, func(p *mesh.ResourceProxy) { p.Tokens.Keys = []mesh.Key{second.public()} })
	f.acknowledged(t, "key-2")
	f.signer = second
	alive("keys have rotated")

	f.change(t, func(p *mesh.ResourceProxy) {
		delete(p.Agents, kit.Agent(t, "b"))
		p.Agents[kit.Agent(t, "c")] = mesh.Agent{}
	})
	f.becomes(t, "c", http.StatusOK)
	f.becomes(t, "b", http.StatusNotFound)
	alive("agents have come and gone")

	if err := f.identities.RotateCA(); err != nil {
		t.Fatal(err)
	}
	alive("certificates and their authority have rotated")

	f.stopXDS()
	f.becomes(t, "c", http.StatusOK) // nothing is lost with the principal
	alive("the xDS server is gone")
	f.startXDS(t) // and does not know anything yet
	f.becomes(t, "c", http.StatusOK)
	f.change(t, func(p *mesh.ResourceProxy) { p.Agents[kit.Agent(t, "d")] = mesh.Agent{} })
	f.becomes(t, "d", http.StatusOK)
	f.acknowledged(t, "key-2")
	alive("another xDS server has come")

	f.change(t, func(p *mesh.ResourceProxy) { delete(p.Agents, kit.Agent(t, "a")) })
	f.becomes(t, "a", http.StatusNotFound)
	alive("the agent itself is gone") // what is under way is the principal's to end
	if n := f.stat(t, "listener_manager.listener_modified"); n != 0 {
		t.Errorf("%v listeners were changed", n)
	}
}

// taken waits until Envoy has said that it has a key.
func (f *front) taken(ctx context.Context, key string) error {
	for {
		keys, changed := f.server.Acknowledged()
		if slices.Contains(keys, key) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("envoy has taken %q: %w", keys, ctx.Err())
		}
	}
}

// A key that is acknowledged is good at once, on every worker of Envoy.
func TestEnvoyTakesKeysBeforeItSaysSo(t *testing.T) {
	t.Parallel()
	const (
		rotations = 30
		callers   = 4
	)
	f := newFront(t, nil)
	for i := range rotations {
		next := newSigner(t, fmt.Sprint("next-", i))
		token := next.token(t, "a")
		f.change(t, func(p *mesh.ResourceProxy) { p.Tokens.Keys = []mesh.Key{f.signer.public(), next.public()} })
		ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
		err := f.taken(ctx, next.id)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		var g errgroup.Group
		for range callers {
			g.Go(func() error {
				status, body, err := f.tryGet(t.Context(), "/agents/a/version", token)
				if err == nil && status != http.StatusOK {
					err = fmt.Errorf("answer is %d %s", status, body)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatalf("rotation %d: %v", i, err)
		}
		f.signer = next
	}
}

// becomes waits until a good token of an agent gets a status.
func (f *front) becomes(t *testing.T, agent string, status int) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("agent %s answers %d", agent, status), func() error {
		got, body, err := f.tryGet(t.Context(), "/agents/"+agent+"/version", f.signer.token(t, agent))
		if err != nil || got != status {
			return fmt.Errorf("answer is %d %s: %w", got, body, err)
		}
		return nil
	})
}

func (f *front) acknowledged(t *testing.T, keys ...string) {
	t.Helper()
	env.Eventually(t, "envoy has taken exactly the keys", func() error {
		if have, _ := f.server.Acknowledged(); strings.Join(have, " ") != strings.Join(keys, " ") {
			return fmt.Errorf("it has %q, not %q", have, keys)
		}
		return nil
	})
}

// liveStream is a watch or an upgrade that is under way.
type liveStream struct {
	name  string
	say   io.Writer // nil for a watch
	lines chan string
	ended chan error
	sent  int
}

// open opens one and waits for its first answer.
func (f *front) open(t *testing.T, path, upgrade string) *liveStream {
	t.Helper()
	conn, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	request := "GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.signer.token(t, "a") + "\r\n"
	if upgrade != "" {
		request = strings.Replace(request, "GET", map[string]string{"websocket": "GET", "SPDY/3.1": "POST"}[upgrade], 1) +
			"Connection: Upgrade\r\nUpgrade: " + upgrade + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, nil) //nolint:bodyclose // it is read until the connection is closed
	if err != nil {
		t.Fatal(err)
	}
	s := &liveStream{name: path + " " + upgrade, lines: make(chan string, 1), ended: make(chan error, 1)}
	var body io.Reader = res.Body
	want := http.StatusOK
	if upgrade != "" {
		s.say, body, want = conn, reader, http.StatusSwitchingProtocols
	}
	if res.StatusCode != want {
		t.Fatalf("%s: answer is %s", s.name, res.Status)
	}
	go func() {
		scanner := bufio.NewScanner(body)
		for scanner.Scan() {
			select {
			case s.lines <- scanner.Text():
			case <-t.Context().Done():
				return
			}
		}
		s.ended <- errors.Join(scanner.Err(), io.EOF)
	}()
	s.check(t, "its opening")
	return s
}

// check has the other side say something.
func (s *liveStream) check(t *testing.T, after string) {
	t.Helper()
	s.sent++
	if s.say != nil {
		if _, err := fmt.Fprintln(s.say, s.sent); err != nil {
			t.Fatalf("%s, after %s: %v", s.name, after, err)
		}
	}
	patient, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	select {
	case line := <-s.lines:
		if s.say != nil && line != strconv.Itoa(s.sent) {
			t.Fatalf("%s, after %s: it echoes %q, want %d", s.name, after, line, s.sent)
		}
	case err := <-s.ended:
		t.Fatalf("%s has ended after %s: %v", s.name, after, err)
	case <-patient.Done():
		t.Fatalf("%s is silent after %s", s.name, after)
	}
}

// An Envoy that is told of more than it may have under way says so at once, and
// what is under way goes on.
func TestEnvoyLimits(t *testing.T) {
	t.Parallel()
	const requests, connections = 5, 8
	f := newFront(t, func(_ *front, s *mesh.Snapshot) {
		s.ResourceProxy.MaxRequests, s.ResourceProxy.MaxConnections = requests, connections
	})
	var live []*liveStream
	for range requests {
		live = append(live, f.open(t, "/agents/a/watch", ""))
	}
	before := f.upstream.requests.Load()
	status, body := f.get(t, "/agents/a/version", f.signer.token(t, "a"))
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "overflow") {
		t.Errorf("request %d gets %d %s, want 503 overflow", requests+1, status, body)
	}
	f.refused(t, before, status, body)
	env.Eventually(t, "Envoy has closed that connection", func() error {
		if open := f.stat(t, "http.resource_proxy.downstream_cx_active"); open != requests {
			return fmt.Errorf("%v are open", open)
		}
		return nil
	})
	for range connections - requests {
		conn, err := f.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	env.Eventually(t, "connections at the limit are closed", func() error {
		if status, _, err := f.tryGet(t.Context(), "/agents/a/version", ""); err == nil {
			return fmt.Errorf("connection %d is served: %d", connections+1, status)
		}
		return nil
	})
	for _, s := range live {
		s.check(t, "the limits")
	}
}

// Requests for one agent beyond its rate are refused at once, and no other agent's with
// them; a token that is no good uses up no one's rate.
func TestEnvoyRateOfAnAgent(t *testing.T) {
	t.Parallel()
	const rate = 5
	f := newFront(t, func(_ *front, s *mesh.Snapshot) {
		s.ResourceProxy.AgentRate = mesh.Rate{Count: rate, Per: time.Hour}
	})
	for range 2 * rate {
		if status, body := f.get(t, "/agents/a/version", f.signer.token(t, "b")); status != http.StatusForbidden {
			t.Fatalf("another agent's token gets %d %s", status, body)
		}
	}
	for i := range rate {
		if status, body := f.get(t, "/agents/a/version", f.signer.token(t, "a")); status != http.StatusOK {
			t.Fatalf("request %d gets %d %s", i+1, status, body)
		}
	}
	before := f.upstream.requests.Load()
	status, body := f.get(t, "/agents/a/version", f.signer.token(t, "a"))
	if status != http.StatusTooManyRequests || !strings.Contains(body, "TooManyRequests") {
		t.Errorf("request %d gets %d %s, want 429", rate+1, status, body)
	}
	f.refused(t, before, status, body)
	if status, body := f.get(t, "/agents/b/version", f.signer.token(t, "b")); status != http.StatusOK {
		t.Errorf("the other agent's request gets %d %s", status, body)
	}
	env.Eventually(t, "Envoy has counted it", func() error {
		if limited := f.stat(t, "rate.http_local_rate_limit.rate_limited"); limited != 1 {
			return fmt.Errorf("%v were limited", limited)
		}
		return nil
	})
}

// Callers that never read hold the principal back, not Envoy's memory, and no one
// else.
func TestEnvoyCallersThatNeverRead(t *testing.T) {
	t.Parallel()
	const (
		callers = 8
		// each bounds what Envoy holds for one of them, in bytes: both directions of
		// buffers, and the connections.
		each = 2 << 20
	)
	f := newFront(t, nil)
	empty := f.heap(t)
	for range callers {
		conn, err := f.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET /agents/a/endless HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+f.signer.token(t, "a")+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	var (
		last  int64
		quiet int
	)
	env.Eventually(t, "the principal is held back", func() error {
		now := f.upstream.endless.Load()
		if quiet++; now != last || now == 0 {
			last, quiet = now, 0
		}
		if quiet < 10 { // looks in a row
			return fmt.Errorf("%d bytes are written and it goes on", now)
		}
		return nil
	})
	if full := f.heap(t); full-empty > callers*each {
		t.Errorf("Envoy holds %.0f bytes for %d callers that do not read, want at most %d each", full-empty, callers, each)
	}
	if status, body := f.get(t, "/agents/a/version", f.signer.token(t, "a")); status != http.StatusOK {
		t.Errorf("another caller gets %d %s", status, body)
	}
}

// Who connects and does not go on is gone within seconds.
func TestEnvoyCallersThatNeverAsk(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	var dialer net.Dialer
	silent, err := dialer.DialContext(t.Context(), "tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(slow, "GET /agents/a/version HTTP/1.1\r\nHost: "); err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]net.Conn{"without a handshake": silent, "in the middle of headers": slow} {
		t.Run(name, func(t *testing.T) {
			defer func() { _ = conn.Close() }()
			if err := conn.SetDeadline(time.Now().Add(env.Patience)); err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection is still there; it said %q", said)
			}
		})
	}
}

// One connection carries many requests, and each is judged by itself.
func TestEnvoyJudgesEachRequest(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	ask := func(client *http.Client, path, token string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.address+path, http.NoBody)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		return client.Do(req)
	}
	tokens := map[string]string{"a": f.signer.token(t, "a"), "b": f.signer.token(t, "b")}
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			var dials atomic.Int64
			transport := &http.Transport{MaxConnsPerHost: 1, ForceAttemptHTTP2: http2, TLSClientConfig: f.tlsConfig()}
			var dialer net.Dialer
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return dialer.DialContext(ctx, network, address)
			}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: env.Patience}
			for range 5 {
				for agent, token := range tokens {
					for other := range tokens {
						res, err := ask(client, "/agents/"+other+"/version", token)
						if err != nil {
							t.Fatal(err)
						}
						_, err = io.Copy(io.Discard, res.Body)
						if err := errors.Join(err, res.Body.Close()); err != nil {
							t.Fatal(err)
						}
						if res.Proto != name || (res.StatusCode == http.StatusOK) != (agent == other) {
							t.Errorf("a token of %s for %s: %s %s", agent, other, res.Proto, res.Status)
						}
					}
				}
			}
			if n := dials.Load(); n != 1 {
				t.Errorf("it took %d connections", n)
			}
		})
	}
}

// Kubelet and Prometheus get what they ask for, and no one gets more of the admin
// interface.
func TestEnvoyStatistics(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	if status, body := f.get(t, "/agents/a/version", f.signer.token(t, "a")); status != http.StatusOK {
		t.Fatalf("answer is %d %s", status, body)
	}
	for request, want := range map[string]struct {
		status int
		body   string
	}{
		"GET /ready":                {http.StatusOK, "LIVE"},
		"GET /stats/prometheus":     {http.StatusOK, `envoy_cluster_upstream_rq_total{envoy_cluster_name="principal"} 1`},
		"GET /ready?x=y":            {http.StatusOK, "LIVE"},
		"POST /ready":               {http.StatusNotFound, ""},
		"GET /config_dump":          {http.StatusNotFound, ""},
		"GET /stats":                {http.StatusNotFound, ""},
		"GET /stats/prometheus/../": {http.StatusNotFound, ""},
		"POST /quitquitquit":        {http.StatusNotFound, ""},
	} {
		t.Run(request, func(t *testing.T) {
			method, path, _ := strings.Cut(request, " ")
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.envoy.StatsAddress+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }() // only read from
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != want.status || !strings.Contains(string(body), want.body) {
				t.Errorf("answer is %s %.200s", res.Status, body)
			}
		})
	}
}

// A principal that does not run is an answer.
func TestEnvoyWithoutPrincipal(t *testing.T) {
	t.Parallel()
	f := newFront(t, func(f *front, s *mesh.Snapshot) {
		s.ResourceProxy.Principal = meshAddress(t, "unix://"+f.h.Path("nobody.sock"))
		s.ResourceProxy.Agents = map[identity.AgentName]mesh.Agent{kit.Agent(t, "a"): {}}
	})
	status, body := f.get(t, "/agents/a/version", f.signer.token(t, "a"))
	if status != http.StatusServiceUnavailable {
		t.Errorf("answer is %d %s", status, body)
	}
	f.refused(t, 0, status, body)
}
