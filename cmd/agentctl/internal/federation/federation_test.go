package federation

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// slow is an API server that has SPIRE's server, and says after a while that there is no bundle.
type slow struct{}

func (slow) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body := http.StatusOK, `{"kind":"StatefulSet","apiVersion":"apps/v1","metadata":{"name":"argomesh-spire-server"}}`
	if strings.Contains(r.URL.Path, "/configmaps/") {
		code, body = http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(800 * time.Millisecond): // in the bubble of the test
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// A SPIRE that does not publish its bundle in time has none, whatever the last question about it was cut off by.
func TestAwaitIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://spoke.example", Transport: slow{}})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := await(t.Context(), client); !apierrors.IsNotFound(err) {
			t.Errorf("it returns %v, %v", found, err)
		}
	})
}
