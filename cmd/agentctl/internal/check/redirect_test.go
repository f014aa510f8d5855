package check

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// What a pod answers leads the machine of who checks it nowhere else.
func TestAPodLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer inside.Close()
	pod := httptest.NewServer(http.RedirectHandler(inside.URL+"/secret", http.StatusFound))
	defer pod.Close()
	if _, err := readiness(t.Context(), pod.URL, Spoke); err == nil {
		t.Error("a redirect is an answer")
	}
	if len(asked) > 0 {
		t.Error("the redirect was followed")
	}
}
