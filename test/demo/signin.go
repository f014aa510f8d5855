//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// signIn is a page on loopback that gives a browser argocd-server's own session, by a
// link that cannot be guessed and that is good once. Then there is another link.
type signIn struct {
	address          string // host and port of the page
	server, password string // argocd-server, and that of its user admin
	used             func() // is called when there is another link

	mu  sync.Mutex // guards key
	key string
}

func newSignIn(address, server, password string) *signIn {
	return &signIn{address: address, server: server, password: password, key: rand.Text(), used: func() {}}
}

// link is good until someone opens it.
func (s *signIn) link() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("http://%s/%s", s.address, s.key)
}

// take reports whether key is that of the link, which it is then no more.
func (s *signIn) take(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(key), []byte(s.key)) != 1 {
		return false
	}
	s.key = rand.Text()
	return true
}

// run serves the page until ctx is done.
func (s *signIn) run(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("the page that signs in: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // a browser that still reads comes again
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// usedUp is what the page says of another link than the one of the moment.
const usedUp = `This link was used, or is of another demo: each is good once.
The terminal of the demo shows the next one, and so does make demo in another terminal.
`

// ServeHTTP signs in, and sends the browser to argocd-server. Cookies know no ports, so
// what this page sets is argocd-server's as well.
func (s *signIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	switch {
	case r.Host != s.address:
		http.Error(w, "This page has another name.", http.StatusMisdirectedRequest)
		return
	case r.Method != http.MethodGet:
		http.Error(w, "This page is only read.", http.StatusMethodNotAllowed)
		return
	case !s.take(strings.TrimPrefix(r.URL.Path, "/")):
		http.Error(w, usedUp, http.StatusGone)
		return
	}
	defer s.used()
	cookies, err := s.session(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	for _, cookie := range cookies {
		w.Header().Add("Set-Cookie", cookie)
	}
	http.Redirect(w, r, "http://"+s.server+"/applications", http.StatusSeeOther)
}

// session signs in at argocd-server as a browser does, and returns the cookies.
func (s *signIn) session(ctx context.Context) ([]string, error) {
	content, err := json.Marshal(map[string]string{"username": "admin", "password": s.password})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.server+"/api/v1/session", bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	cookies := response.Header.Values("Set-Cookie")
	if response.StatusCode != http.StatusOK || len(cookies) == 0 {
		return nil, fmt.Errorf("argocd-server does not sign in user admin: %s; has its password changed?", response.Status)
	}
	return cookies, nil
}
