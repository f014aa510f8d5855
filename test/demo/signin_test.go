//go:build linux

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSignIn opens the link in the ways in which browsers, previews of links and others do.
func TestSignIn(t *testing.T) {
	argocd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var login struct{ Username, Password string }
		if err := json.NewDecoder(r.Body).Decode(&login); err != nil || r.URL.Path != "/api/v1/session" || login.Username != "admin" || login.Password != "right" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: "argocd.token", Value: "session", HttpOnly: true})
	}))
	defer argocd.Close()
	server := strings.TrimPrefix(argocd.URL, "http://")
	var used int
	page := newSignIn("127.0.0.1:1", server, "right")
	page.used = func() { used++ }
	type answer struct {
		status         int
		location, text string
		cookies        []string
	}
	ask := func(method, host, path string) answer {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, "http://"+host+path, http.NoBody)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		return answer{w.Code, w.Header().Get("Location"), w.Body.String(), w.Header().Values("Set-Cookie")}
	}
	path := func() string { return strings.TrimPrefix(page.link(), "http://127.0.0.1:1") }
	first := path()
	for name, c := range map[string]struct {
		method, host, path string
		want               int
	}{
		"a guess":                       {http.MethodGet, "127.0.0.1:1", "/AAAAAAAAAAAAAAAAAAAAAAAAAA", http.StatusGone},
		"no key":                        {http.MethodGet, "127.0.0.1:1", "/", http.StatusGone},
		"a preview":                     {http.MethodHead, "127.0.0.1:1", first, http.StatusMethodNotAllowed},
		"a form":                        {http.MethodPost, "127.0.0.1:1", first, http.StatusMethodNotAllowed},
		"a name that leads to loopback": {http.MethodGet, "rebound.example.org:1", first, http.StatusMisdirectedRequest},
	} {
		got := ask(c.method, c.host, c.path)
		if got.status != c.want || len(got.cookies) > 0 {
			t.Errorf("%s: status %d, want %d; cookies %v", name, got.status, c.want, got.cookies)
		}
	}
	if used != 0 || path() != first {
		t.Fatalf("the link was used %d times by what does not open it", used)
	}
	opened := ask(http.MethodGet, "127.0.0.1:1", first)
	if opened.status != http.StatusSeeOther || opened.location != argocd.URL+"/applications" ||
		len(opened.cookies) != 1 || !strings.HasPrefix(opened.cookies[0], "argocd.token=session; HttpOnly") {
		t.Errorf("the link: %+v", opened)
	}
	if used != 1 || path() == first {
		t.Errorf("after its use there is no other link, %d uses were told", used)
	}
	again := ask(http.MethodGet, "127.0.0.1:1", first)
	if again.status != http.StatusGone || !strings.Contains(again.text, "good once") {
		t.Errorf("a second use: %+v", again)
	}

	page.password = "wrong"
	if got := ask(http.MethodGet, "127.0.0.1:1", path()); got.status != http.StatusBadGateway || len(got.cookies) > 0 {
		t.Errorf("with another password: %+v", got)
	}
}

// The chart's policy is rendered whole: nothing of the template's language is left.
func TestMirrorPolicy(t *testing.T) {
	policy, err := mirrorPolicy("../../charts/argomesh-principal/templates/mirrors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"{{": false, "validationActions: [Deny]": true, "pre-delete": false,
		"'system:serviceaccount:argocd:argomesh-principal'": true, "name: argomesh-principal-mirrors.argocd": true,
	} {
		if strings.Contains(string(policy), text) != want {
			t.Errorf("the policy contains %q: %t, want %t\n%s", text, !want, want, policy)
		}
	}
}
