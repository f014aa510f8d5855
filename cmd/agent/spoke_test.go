package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// An agent that cannot learn which cluster it is in is not ready, and says why, each
// reason once.
func TestDescribeSpoke(t *testing.T) {
	var d description
	var mu sync.Mutex // guards asked
	asked := 0
	failures := []int{http.StatusForbidden, http.StatusForbidden, http.StatusNotFound}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if d.ready() == nil {
			t.Error("ready before the API server has told")
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.2.3"}`))
		case asked < len(failures):
			w.WriteHeader(failures[asked])
			asked++
		default:
			_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"the-uid"}}`))
		}
	}))
	defer api.Close()
	config := &rest.Config{Host: api.URL}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if d.ready() == nil {
		t.Error("ready before anybody asked")
	}
	var log bytes.Buffer
	got, ok := describeSpoke(t.Context(), config, client, &d, zerolog.New(&log))
	if want := (spoke{uid: "the-uid", version: "v1.2.3"}); !ok || got != want {
		t.Errorf("describeSpoke() = %+v, %t, want %+v", got, ok, want)
	}
	if err := d.ready(); err != nil {
		t.Errorf("not ready in the end: %v", err)
	}
	if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[0], "kube-system") {
		t.Errorf("the log is %q, want a line for each of two reasons", lines)
	}
}
